import { countText } from 'sluice/internal'
import { addReason, parseNonEmpty, parseQueueName, wholeNumber } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingQueue } from '../existing-queue.ts'
import { numberText } from '../queue-text.ts'

interface RedriveOptions {
  readonly from: string
  readonly count?: number
  readonly failedReason?: string
  readonly reason: string
}

export const addCommand: AddCommand = (program, run) => {
  const command = program
    .command('redrive')
    .description(
      'Puts the jobs of dead letters back, oldest first, as places become free. It can be stopped and run again: each ' +
        'job is put back once.',
    )
    .argument('<queue>', 'the queue that they failed in', parseQueueName)
    .requiredOption('--from <queue>', 'the queue of dead letters (required)', parseQueueName)
    .option('--count <jobs>', 'put back at most this many', wholeNumber(1, 1_000_000_000))
    .option('--failed-reason <text>', 'only those whose reason contains this text', parseNonEmpty)
  addReason(command)
    .addHelpText(
      'after',
      `
Example:
  $ sluice redrive emails --from emails-dead --count 100 --reason fixed
`,
    )
    .action(run(redrive))
}

async function redrive(cli: Cli, name: string, { from, count, failedReason, reason }: RedriveOptions): Promise<void> {
  const queue = await existingQueue(cli, name)
  await existingQueue(cli, from)
  const result = await queue.redrive({
    from,
    ...(count === undefined ? {} : { limit: count }),
    ...(failedReason === undefined ? {} : { filter: (letter) => letter.failedReason.includes(failedReason) }),
    by: cli.by,
    reason,
    signal: cli.signal,
  })
  cli.print({ queue: name, from, ...result }, () => {
    const counts = [
      `${countText(result.redriven, 'job')} put back`,
      `${numberText(result.back)} were back already`,
      `${numberText(result.taken)} kept, as another job has the id`,
      `${numberText(result.skipped)} left`,
    ]
    return `${name}: ${counts.join(', ')}`
  })
}
