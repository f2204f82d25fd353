import { once } from 'node:events'
import type { QueueStatus, RedisState } from 'sluice/inspect'
import { compareFillLevels, countText, formatDuration, urgencyOf } from 'sluice/internal'
import { parseQueueName, wholeNumber } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingStatus } from '../existing-queue.ts'
import { jsonLine } from '../json-line.ts'
import { fleetTable, needLookText, queueText, redisLookText } from '../queue-text.ts'

/** Maximum number of queues in the table. */
const LIMIT = 100
/** Characters per write: writing each queue separately would cost more than reading it. */
const WRITTEN_AT_ONCE = 65_536

interface StatusOptions {
  readonly limit?: number
  readonly all?: true
}

export const addCommand: AddCommand = (program, run) => {
  program
    .command('status')
    .description(
      'Shows the state of queues, worst first: their rates and what set them, what waits, and what holds the head.',
    )
    .argument('[queue]', 'one queue, in detail', parseQueueName)
    .option(
      '--limit <queues>',
      `show only this many, the fullest (default: ${LIMIT}; with --json all)`,
      wholeNumber(1, 1_000_000_000),
    )
    .option('--all', 'show all queues')
    .addHelpText(
      'after',
      `
Examples:
  $ sluice status emails
  $ sluice status --json | jq '.queues[] | select(.depth > 1000) | .name'
`,
    )
    .action(run(showStatus))
}

async function showStatus(cli: Cli, name: string | undefined, options: StatusOptions): Promise<void> {
  const redis = await readRedis(cli)
  if (name === undefined) return showQueues(cli, redis, options)
  const status = await existingStatus(cli, name)
  cli.print({ redis, queues: [status] }, () => {
    return [...redisLookText(cli, redis, [status]), queueText(cli, status)].join('\n')
  })
}

async function showQueues(cli: Cli, redis: RedisState, { limit, all }: StatusOptions): Promise<void> {
  const inspector = cli.inspector()
  const names = await inspector.queues()
  const most = all ? Number.POSITIVE_INFINITY : (limit ?? (cli.options.json ? Number.POSITIVE_INFINITY : LIMIT))
  const shown = most < names.length ? await inspector.fullest(names, most) : names
  if (cli.options.json) return printJson(redis, inspector.statuses(shown))
  // A queue may have been removed since.
  const queues = (await inspector.status(shown)).filter((status) => status !== undefined).sort(compareQueues)
  cli.print(queues, () => {
    const ofRedis = redisLookText(cli, redis, queues)
    if (queues.length === 0) return [`no shaped queues under prefix "${cli.options.prefix}"`, ...ofRedis].join('\n')
    const rest = names.length - shown.length
    const more = rest === 0 ? [] : [cli.colors.dim(`… ${countText(rest, 'more queue')}: --all shows them`)]
    const why = [...ofRedis, ...needLookText(cli, queues)]
    return [fleetTable(cli, queues, process.stdout.columns), ...more, ...(why.length === 0 ? [] : ['', ...why])].join(
      '\n',
    )
  })
}

/** Those that need a look first, then the fullest. */
function compareQueues(one: QueueStatus, other: QueueStatus): number {
  return urgencyOf(other.conditions) - urgencyOf(one.conditions) || compareFillLevels(one, other)
}

/** Prints one object on one line, written as it is read, since there may be very many queues. */
async function printJson(redis: RedisState, queues: AsyncIterable<QueueStatus>): Promise<void> {
  let text = jsonLine({ redis, queues: [] }).slice(0, -2)
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

/** What Redis says of itself; prints the lag of a replica. */
async function readRedis(cli: Cli): Promise<RedisState> {
  const redis = await cli.inspector().redisState()
  if (redis.role === 'replica' && !cli.options.json) {
    const { lagMs } = redis
    cli.note(`read from a replica, ${lagMs === undefined ? 'lag unknown' : `${formatDuration(lagMs)} behind`}`)
  }
  return redis
}
