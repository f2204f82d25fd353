import { addReason, parseQueueName, type Reason } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingWhole } from '../existing-queue.ts'

export const addCommand: AddCommand = (program, run) => {
  const command = program
    .command('resume')
    .description("Ends both pauses of a queue, BullMQ's and the meter's.")
    .argument('<queue>', 'the queue', parseQueueName)
  addReason(command).action(run(resume))
}

async function resume(cli: Cli, name: string, { reason }: Reason): Promise<void> {
  const queue = await existingWhole(cli, name)
  // Shards of which one does not answer are resumed as far as they do.
  await queue.clearPause({ by: cli.by, reason }).finally(() => queue.resume())
  cli.print({ queue: name, paused: false, by: cli.by, reason }, () => `${name} is resumed`)
}
