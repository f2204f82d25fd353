import { once } from 'node:events'
import { compareCrowds } from '../../inspect/crowd.ts'
import type { QueueStatus } from '../../inspect/queue-status.ts'
import type { Replication } from '../../inspect/replication.ts'
import { parseQueueName, wholeNumber } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { formatDuration } from '../duration.ts'
import { existingStatus } from '../existing-queue.ts'
import { jsonLine } from '../json-line.ts'
import { countText, fleetTable, queueText } from '../queue-text.ts'

/** Lines of a table that people read. */
const LIMIT = 100
/** Characters: a write for each queue would cost more than to read it. */
const WRITTEN_AT_ONCE = 65_536

interface StatusOptions {
  readonly limit?: number
  readonly all?: true
}

export const addStatusCommand: AddCommand = (program, run) => {
  program
    .command('status')
    .description(
      'Queues at this moment: how fast they leave and why, what waits, what holds them. Those in which jobs wait come ' +
        'first, the fullest at the top.',
    )
    .argument('[queue]', 'one queue, in detail', parseQueueName)
    .option('--limit <queues>', `at most so many (default: ${LIMIT}; with --json all)`, wholeNumber(1, 1_000_000_000))
    .option('--all', 'all of them')
    .addHelpText(
      'after',
      `
Examples:
  $ sluice status
  $ sluice status emails
  $ sluice status --limit 10
  $ sluice status --json | jq '.queues[] | select(.depth > 1000) | .name'
`,
    )
    .action(run(showStatus))
}

async function showStatus(cli: Cli, name: string | undefined, options: StatusOptions): Promise<void> {
  const read = await replicaNote(cli)
  if (name === undefined) return showQueues(cli, read, options)
  const status = await existingStatus(cli, name)
  cli.print({ ...read, queues: [status] }, () => queueText(cli, status))
}

async function showQueues(cli: Cli, read: ReadFrom, { limit, all }: StatusOptions): Promise<void> {
  const inspector = cli.inspector()
  const names = await inspector.queues()
  const most = all ? Number.POSITIVE_INFINITY : (limit ?? (cli.options.json ? Number.POSITIVE_INFINITY : LIMIT))
  const shown = most < names.length ? await inspector.fullest(names, most) : names
  if (cli.options.json) return printJson(read, inspector.statuses(shown))
  // One may be gone since.
  const queues = (await inspector.status(shown)).filter((status) => status !== undefined).sort(compareCrowds)
  cli.print(queues, () => {
    if (queues.length === 0) return `no shaped queues under prefix "${cli.options.prefix}"`
    const rest = names.length - shown.length
    return rest === 0
      ? fleetTable(cli, queues)
      : `${fleetTable(cli, queues)}\n${cli.colors.dim(`… ${countText(rest, 'more queue')}: --all shows them`)}`
  })
}

/** One object on one line, written as it is read: it may be of very many queues. */
async function printJson(read: ReadFrom, queues: AsyncIterable<QueueStatus>): Promise<void> {
  let text = jsonLine({ ...read, queues: [] }).slice(0, -2)
  let separator = ''
  for await (const status of queues) {
    text += separator + jsonLine(status)
    separator = ','
    if (text.length < WRITTEN_AT_ONCE) continue
    await write(text)
    text = ''
  }
  await write(`${text}]}\n`)
}

async function write(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain')
}

/** What is read from a replica may be old: how old, where it is one. */
interface ReadFrom {
  readonly read?: Replication
}

/** With `--read-url` asks that Redis what it is, and notes its lag. */
async function replicaNote(cli: Cli): Promise<ReadFrom> {
  if (cli.options.readUrl === undefined) return {}
  const read = await cli.inspector().replication()
  if (read.role === 'replica' && !cli.options.json) {
    cli.note(
      `read from a replica, ${read.lagMs === undefined ? 'lag unknown' : `${formatDuration(read.lagMs)} behind`}`,
    )
  }
  return { read }
}
