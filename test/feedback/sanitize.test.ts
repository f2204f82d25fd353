import { expect, test } from 'vitest'
import { sanitizeFindings } from '../../src/feedback/sanitize.ts'
import { said } from './support/told.ts'

const DAY_MS = 86_400_000
const UNKNOWN_PAUSE = { kind: 'pause', forMs: undefined, hard: false }

test.each([
  [
    { kind: 'slow', factor: 0.5 },
    { kind: 'slow', factor: 0.5 },
  ],
  [
    { kind: 'slow', factor: 0.0001, ttlMs: 5 },
    { kind: 'slow', factor: 0.001, ttlMs: 5 },
  ],
  ...[0, 1, 2, -1].map((factor) => [{ kind: 'slow', factor }, UNKNOWN_PAUSE] as const),
  [
    { kind: 'slow', rate: { limit: 1, period: 100 * DAY_MS } },
    { kind: 'slow', rate: { limit: 1, period: 100 * DAY_MS } },
  ],
  [{ kind: 'slow', rate: { limit: 1, period: 101 * DAY_MS } }, UNKNOWN_PAUSE],
  [{ kind: 'slow', rate: { limit: 1, period: 0 } }, UNKNOWN_PAUSE],
  [
    { kind: 'concurrency', limit: 1 },
    { kind: 'concurrency', limit: 1 },
  ],
  [{ kind: 'concurrency', limit: 0.9 }, UNKNOWN_PAUSE],
  [
    { kind: 'concurrency', factor: 0.0001 },
    { kind: 'concurrency', factor: 0.001 },
  ],
  ...[0, 1, 2, -1].map((factor) => [{ kind: 'concurrency', factor }, UNKNOWN_PAUSE] as const),
  [
    { kind: 'pause', forMs: -1, hard: 1 },
    { kind: 'pause', forMs: 0, hard: false },
  ],
  [
    { kind: 'pause', forMs: Number.NaN, hard: true },
    { kind: 'pause', forMs: undefined, hard: true },
  ],
  [
    { kind: 'retryJob', afterMs: 101 * DAY_MS },
    { kind: 'retryJob', afterMs: 100 * DAY_MS },
  ],
  [
    { kind: 'ok', remaining: Number.NaN, resetMs: 5, costUsed: 2 },
    { kind: 'ok', resetMs: 5, costUsed: 2 },
  ],
] as const)('%j is taken as %j', (given, found) => {
  const onWrong = (error: Error) => expect(error).toBeUndefined()
  expect(sanitizeFindings([{ feedback: { ...given, ...said } }], onWrong)).toEqual([
    { feedback: { ...found, ...said } },
  ])
})
