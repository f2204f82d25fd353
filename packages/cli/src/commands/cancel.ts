import type { CancelFilter, CancelOutcome } from 'sluice'
import { CANCELLED, countText, plainText } from 'sluice/internal'
import { addReason, durationOption, parseNonEmpty, parseQueueName } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { existingWhole } from '../existing-queue.ts'

export const addCommand: AddCommand = (program, run) => {
  const command = program
    .command('cancel')
    .description(
      'Cancels jobs: waiting ones fail with the reason, or are removed; running ones are aborted. None of them starts ' +
        'again.',
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('[jobs...]', 'the ids of jobs')
    .option('--group <id>', 'jobs of this group', parseNonEmpty)
    .option('--name <name>', 'jobs of this name', parseNonEmpty)
    .addOption(durationOption('--older-than <duration>', 'jobs added longer ago than this'))
    .option('--all', 'all jobs that have not finished')
    .option('--remove', 'remove waiting jobs instead of failing them')
  addReason(command)
    .addHelpText(
      'after',
      `
Example:
  $ sluice cancel emails --group tenant-7 --older-than 1h --reason 'gone stale'
`,
    )
    .action(run(cancel))
}

interface Options {
  readonly group?: string
  readonly name?: string
  readonly olderThan?: number
  readonly all?: true
  readonly remove?: true
  readonly reason: string
}

async function cancel(cli: Cli, queueName: string, given: string[], options: Options): Promise<void> {
  const { group, name, olderThan, all, remove = false, reason } = options
  const filter: CancelFilter = {
    ...(group === undefined ? {} : { group }),
    ...(name === undefined ? {} : { name }),
    ...(olderThan === undefined ? {} : { olderThanMs: olderThan }),
  }
  if ([given.length > 0, all, Object.keys(filter).length > 0].filter(Boolean).length !== 1) {
    throw new CommandError(
      EXIT_CODES.usage,
      'expected the ids of jobs, or --all, or some of --group, --name and --older-than',
    )
  }
  const queue = await existingWhole(cli, queueName)
  const why = { reason, by: cli.by, remove }
  if (given.length === 0) {
    const counts = await queue.cancelJobs(filter, { ...why, signal: cli.signal })
    cli.print({ queue: queueName, ...counts }, () => `${queueName}: ${countsText(counts)}`)
    return
  }
  const outcomes: Record<string, CancelOutcome> = {}
  for (const id of new Set(given)) outcomes[id] = await queue.cancelJob(id, why)
  cli.print({ queue: queueName, jobs: outcomes }, () =>
    Object.entries(outcomes)
      .map(([id, outcome]) => `${plainText(id)} ${WORDS[outcome]}`)
      .join('\n'),
  )
  const left = Object.values(outcomes).filter((outcome) => !CANCELLED.some((cancelled) => cancelled === outcome))
  if (left.length === 0) return
  const code = left.includes('unknown') ? EXIT_CODES.notFound : EXIT_CODES.failed
  throw new CommandError(code, `${countText(left.length, 'job')} not cancelled`)
}

const WORDS: Readonly<Record<CancelOutcome, string>> = {
  failed: 'has failed',
  removed: 'is removed',
  aborting: 'runs, and is being aborted',
  stalled: 'has lost its worker, and fails once it is found',
  ended: 'had ended',
  scheduled: 'belongs to a scheduler: remove that instead',
  unknown: 'is not in the queue',
}

function countsText(counts: Readonly<Record<string, number>>): string {
  const changed = Object.entries(counts).filter(([, count]) => count > 0)
  return changed.length === 0 ? 'no such jobs' : changed.map(([outcome, count]) => `${count} ${outcome}`).join(', ')
}
