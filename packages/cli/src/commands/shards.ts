import { countText, formatDuration, plainText } from 'sluice/internal'
import type { MoveProgress, MoveResult, ShardedQueue } from 'sluice/sharding'
import { addReason, durationOption, parseQueueName } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { existingWhole } from '../existing-queue.ts'

interface MoveCommandOptions {
  readonly reason: string
  readonly timeout?: number
  readonly obliterate?: boolean
}

/** Without news, how often a line says that it still waits, ms. */
const REMIND_MS = 30_000

export const addCommand: AddCommand = (program, run) => {
  const shards = program.command('shards').description('Changes the number of shards of a queue.')
  const move = shards
    .command('move')
    .description(
      'Moves a sharded queue to a declared, empty one with another shard count; the new one is paused until the old one ' +
        'is empty. It can be stopped and run again.',
    )
    .argument('<from>', 'the old queue', parseQueueName)
    .argument('<to>', 'the new queue', parseQueueName)
    .addOption(durationOption('--timeout <duration>', 'give up after this time; the new queue stays paused'))
    .option('--obliterate', 'remove the old queue at the end; first close its workers and producers')
    .addHelpText(
      'after',
      `
Example:
  $ sluice shards move mail mail-12 --timeout 2h --reason 'twelve shards'
`,
    )
  addReason(move).action(run(moveQueue))
}

async function moveQueue(cli: Cli, from: string, to: string, options: MoveCommandOptions): Promise<void> {
  const { moveShardedQueue } = await import('sluice/sharding')
  const [old, renewed] = [await existingSharded(cli, from), await existingSharded(cli, to)]
  const { reason, timeout: timeoutMs, obliterate } = options
  const notes = new ProgressNotes(cli, from, to)
  const onProgress = (progress: MoveProgress) => notes.add(progress)
  const result = await moveShardedQueue(old, renewed, {
    ...{ by: cli.by, reason, timeoutMs, obliterate, onProgress, signal: cli.signal },
  })
  cli.print({ from, to, ...result }, () => resultText(from, to, result))
}

async function existingSharded(cli: Cli, name: string): Promise<ShardedQueue> {
  const queue = await existingWhole(cli, name)
  if ('each' in queue) return queue
  throw new CommandError(EXIT_CODES.usage, `queue "${plainText(name)}" has no shards: expected a sharded queue`)
}

/** Lines on stderr: at each change of what it waits for, and now and then. */
class ProgressNotes {
  readonly #cli: Cli
  readonly #from: string
  readonly #to: string
  #last = ''
  #notedMs = Number.NEGATIVE_INFINITY

  constructor(cli: Cli, from: string, to: string) {
    this.#cli = cli
    this.#from = from
    this.#to = to
  }

  add(progress: MoveProgress): void {
    if (this.#last === '') this.#cli.note(`${this.#to} is paused: switch the producers of ${this.#from} to it`)
    const { phase, hold, arrived } = progress
    const key = `${phase} ${hold} ${arrived > 0}`
    if (key === this.#last && performance.now() < this.#notedMs + REMIND_MS) return
    this.#last = key
    this.#notedMs = performance.now()
    this.#cli.note(progressText(this.#from, progress))
  }
}

function progressText(from: string, progress: MoveProgress): string {
  const { phase, restMs, waiting, delayed, waitingChildren, active, schedulers, arrived, hold } = progress
  if (phase === 'resting') {
    return `${from} is empty; ${formatDuration(restMs)} until its last departures no longer count`
  }
  // Nothing is known of the queue then.
  if (hold === 'unavailable') return `${from}: Redis does not answer, or refuses to; trying again`
  const parts = [
    `${from}: ${waiting} waiting, ${delayed} delayed, ${active} running`,
    ...(waitingChildren > 0 ? [`${waitingChildren} waiting for children`] : []),
    ...(schedulers > 0 ? [`${countText(schedulers, 'scheduler')} with a job that is due`] : []),
  ]
  const notes = [
    ...(arrived > 0 ? [`${countText(arrived, 'job')} came into it meanwhile: switch all of its producers`] : []),
    ...holdText(progress),
  ]
  return [parts.join(', '), ...notes].join('; ')
}

function holdText({ hold, nextDueAt }: MoveProgress): string[] {
  switch (hold) {
    case 'paused':
      return ['it is paused, and does not drain until that ends']
    case 'workers':
      return ['shards with jobs have no live worker: start the workers of the old queue']
    case 'groups':
      return ['only jobs of paused groups are left: sluice group list shows them']
    case 'delayed':
      return [
        `only delayed jobs are left, the first is due at ${nextDueAt?.toISOString() ?? 'an unknown time'}: if that is too ` +
          'long, interrupt this and see docs/sharding.md, "The number of shards"',
      ]
    case 'children':
      return ['only parents are left, whose children are in other queues']
    default:
      return []
  }
}

function resultText(from: string, to: string, result: MoveResult): string {
  const { groups, overrides, schedulers, resumed, obliterated, failed, deadLetters } = result
  const carried = [
    countText(schedulers, 'scheduler'),
    countText(groups, 'group'),
    countText(overrides, 'override'),
  ].join(', ')
  return [
    `${from} is moved to ${to} (carried over: ${carried})`,
    resumed ? `${to} is resumed` : `${to} stays paused, as it was before the move: sluice resume ${to}`,
    ...(failed > 0 && !obliterated ? [`${from} keeps ${countText(failed, 'failed job')} until it is removed`] : []),
    ...deadLetters.map(({ prefix, queue, letters }) => {
      return `${countText(letters, 'dead letter')} in ${plainText(queue)}, --prefix '${plainText(prefix)}'`
    }),
    obliterated ? `${from} is removed` : `close the workers and producers of ${from}; then --obliterate removes it`,
  ].join('\n')
}
