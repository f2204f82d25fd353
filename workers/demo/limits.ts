import type { RedisKind } from '../services/redis.ts'
import { type QueueKind, queueKinds } from './queues.ts'
import type { OutboxLine } from './read-outbox.ts'

/** What a run does, as far as it was not asked for. */
export interface Limits {
  rate: string
  capacity: number
  lines: readonly OutboxLine[]
  /** What to tell the user when it is less than usual. */
  notice?: string
}

/** On a real Redis: the rate of each queue, and how many jobs may wait in it. */
export const usual = { rate: '50/s', capacity: 200 } as const

/** On the emulator, with room to spare: it needs some 20 ms for a job, and both queues share it. */
const emulated = { rate: '10/s', capacity: 50, linesOfEachKind: 200 } as const

function firstOfEach(lines: readonly OutboxLine[], most: number): OutboxLine[] {
  const taken: Record<QueueKind, number> = { email: 0, write: 0 }
  return lines.filter(({ kind }) => ++taken[kind] <= most)
}

/** Settles the limits for the Redis that was found: the emulator gets a lower rate and fewer lines, so that it keeps up. */
export function limitsFor(
  redis: RedisKind,
  lines: readonly OutboxLine[],
  asked: { rate?: string; capacity?: number },
): Limits {
  if (redis !== 'emulator') return { ...usual, ...asked, lines }
  const { rate, capacity } = { ...emulated, ...asked }
  const fewer = firstOfEach(lines, emulated.linesOfEachKind)
  const kinds = queueKinds.map((kind) => `${fewer.filter((line) => line.kind === kind).length} ${kind}s`).join(' and ')
  const notice = `No Redis server could be had, so an emulator stands in: ${rate} and the first ${kinds} of the input. Its figures say little about a real Redis.`
  return { rate, capacity, lines: fewer, notice }
}
