import { parseQueueName } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingStatus } from '../existing-queue.ts'
import { fleetTable, queueText } from '../queue-text.ts'
import { replicaNote } from '../replica-note.ts'

export const addStatusCommand: AddCommand = (program, run) => {
  program
    .command('status')
    .description('Queues at this moment: how fast they leave and why, what waits, what holds them.')
    .argument('[queue]', 'one queue, in detail', parseQueueName)
    .addHelpText(
      'after',
      `
Examples:
  $ sluice status
  $ sluice status emails
  $ sluice status --json | jq '.queues[] | select(.depth > 1000) | .name'
`,
    )
    .action(run(showStatus))
}

async function showStatus(cli: Cli, name: string | undefined): Promise<void> {
  const read = await replicaNote(cli)
  const queues = name === undefined ? await allQueues(cli) : [await existingStatus(cli, name)]
  cli.print({ ...read, queues }, () => {
    if (name !== undefined) return queues.map((status) => queueText(cli, status)).join('\n')
    return queues.length === 0 ? `no shaped queues under prefix "${cli.options.prefix}"` : fleetTable(cli, queues)
  })
}

async function allQueues(cli: Cli) {
  const inspector = cli.inspector()
  const names = await inspector.queues()
  // One may be gone since.
  return (await inspector.status(names)).filter((status) => status !== undefined)
}
