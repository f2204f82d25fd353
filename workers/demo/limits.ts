import { parseRate } from '../../src/index.ts'
import type { RedisKind } from '../services/redis.ts'
import { type QueueKind, queueKinds } from './queues.ts'
import type { OutboxLine } from './read-outbox.ts'
import { counted, roughly } from './words.ts'

/** The limits of a run, from options and defaults. */
export interface Limits {
  rate: string
  capacity: number
  lines: readonly OutboxLine[]
  /** A notice for the user where the limits are lower than usual. */
  notice?: string
}

/** On a real Redis: the rate of each queue, and how many jobs may wait in it. */
export const usual = { rate: '50/s', capacity: 200 } as const

/** How late a job of the demonstration may start: its queues keep the default. */
export const maxLatenessMs = 100

/** For the emulator, with a margin: it needs about 20 ms per job, and both queues share it. */
const emulated = { rate: '10/s', capacity: 50, linesOfEachKind: 200 } as const

/** The run would take too long for a demonstration. The message has the estimate and what to change. */
export class TooLongError extends Error {
  override readonly name = 'TooLongError'
}

const longestRunMs = 3_600_000

/**
 * Refuses a run that cannot end within an hour, because one queue has too many lines for the rate.
 * @throws TooLongError
 */
export function checkDuration(lines: readonly OutboxLine[], rate: string = usual.rate): void {
  const most = Math.max(...queueKinds.map((kind) => countLines(lines, kind)))
  const { limit, periodMs } = parseRate(rate)
  const runMs = ((most - 1) * periodMs) / limit
  if (runMs <= longestRunMs) return
  throw new TooLongError(
    `${counted(most, 'line')} for one queue at ${rate} take ${roughly(runMs)}: expected at most an hour. Give a higher --rate or a shorter --input.`,
  )
}

/** The number of lines for a queue. */
export function countLines(lines: readonly OutboxLine[], kind: QueueKind): number {
  return lines.filter((line) => line.kind === kind).length
}

function firstOfEach(lines: readonly OutboxLine[], most: number): OutboxLine[] {
  const taken: Record<QueueKind, number> = { email: 0, write: 0 }
  return lines.filter(({ kind }) => ++taken[kind] <= most)
}

/**
 * Chooses the limits for the Redis that was found: the emulator gets a lower rate and fewer lines, so that it keeps up.
 */
export function limitsFor(
  redis: RedisKind,
  lines: readonly OutboxLine[],
  asked: { rate?: string; capacity?: number },
): Limits {
  if (redis !== 'emulator') return { ...usual, ...asked, lines }
  const { rate, capacity } = { ...emulated, ...asked }
  const fewer = firstOfEach(lines, emulated.linesOfEachKind)
  const kinds = queueKinds.map((kind) => counted(countLines(fewer, kind), kind)).join(' and ')
  const notice = `No Redis server is available.\nAn emulator is used instead: ${rate} and the first ${kinds} only.\nIts figures say little about a real Redis.`
  return { rate, capacity, lines: fewer, notice }
}
