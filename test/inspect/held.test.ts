import { expect, test } from 'vitest'
import type { MeterFields } from '../../src/inspect/bucket.ts'
import { type HeldQueue, heldAt } from '../../src/inspect/held.ts'

/** µs */
const NOW = 1_700_000_000_000_000
const SECOND = 1_000_000

const waiting: HeldQueue = {
  nowUs: NOW,
  isWaiting: true,
  active: 1,
  headReadyUs: NOW - 30 * SECOND,
  isPaused: false,
  pausedUntilUs: undefined,
}

/** What a worker found 4 s ago. */
const found = (holds: string, untilUs?: number): MeterFields => ({
  ...{
    heldRate: '1000000',
    heldLimits: '2000000',
    heldConcurrency: '3000000',
    heldPause: '4000000',
    heldWorkers: '5000000',
  },
  holds,
  holdsUntil: untilUs === undefined ? '' : String(untilUs),
  heldAt: String(NOW - 4 * SECOND),
  holdsSince: String(NOW - 9 * SECOND),
})

const sum = { rate: 1000, limits: 2000, concurrency: 3000, pause: 4000, workers: 5000 }

test.each<[string, MeterFields, Partial<HeldQueue>, object | undefined, object]>([
  ['nothing waits', found('rate', NOW + SECOND), { isWaiting: false }, undefined, sum],
  ['the rate', found('rate', NOW + SECOND), {}, { cause: 'rate', since: -9, until: 1 }, { ...sum, rate: 5000 }],
  [
    'the rate, until its slot; a worker since',
    found('rate', NOW - SECOND),
    {},
    { cause: 'workers', since: -1 },
    { ...sum, rate: 4000, workers: 6000 },
  ],
  [
    'a limit',
    found('limits:llm:a', NOW + 2 * SECOND),
    {},
    { cause: 'limits', limit: 'llm:a', since: -9, until: 2 },
    { ...sum, limits: 6000 },
  ],
  ['running jobs', found('concurrency'), {}, { cause: 'concurrency', since: -9 }, { ...sum, concurrency: 7000 }],
  [
    'running jobs that have ended, whose workers closed',
    found('concurrency'),
    { active: 0 },
    { cause: 'workers', since: -4 },
    { ...sum, concurrency: 7000 },
  ],
  ['no worker', found('workers'), {}, { cause: 'workers', since: -9 }, { ...sum, workers: 9000 }],
  [
    'a worker, while all take jobs',
    { ...found('workers'), seen: String(NOW - 2 * SECOND) },
    {},
    { cause: 'workers', since: -2 },
    { ...sum, workers: 9000 },
  ],
  [
    'a worker, while all take jobs that no rate holds',
    { ...found('workers'), leftAt: String(NOW - 3 * SECOND) },
    {},
    { cause: 'workers', since: -3 },
    { ...sum, workers: 9000 },
  ],
  ['a pause', found('pause'), { isPaused: true }, { cause: 'pause', since: -9 }, { ...sum, pause: 8000 }],
  [
    'a pause that no worker has seen yet',
    found('rate', NOW + SECOND),
    { isPaused: true, pausedUntilUs: NOW + 60 * SECOND },
    { cause: 'pause', since: -4, until: 60 },
    { ...sum, rate: 5000 },
  ],
  ['nobody has looked since it was empty', found(''), {}, { cause: 'workers', since: -4 }, sum],
  [
    'nobody has looked since a newer head came',
    found(''),
    { headReadyUs: NOW - SECOND },
    { cause: 'workers', since: -1 },
    sum,
  ],
  ['a word of a later version', found('weather'), {}, { cause: 'workers', since: -4 }, sum],
  [
    'a queue of an older version',
    {},
    {},
    { cause: 'workers', since: -30 },
    { rate: 0, limits: 0, concurrency: 0, pause: 0, workers: 0 },
  ],
])('what holds the head: %s', (_, meter, queue, hold, heldMs) => {
  const held = heldAt(meter, { ...waiting, ...queue })
  expect(held.heldMs).toEqual(heldMs)
  expect(held.hold && inSeconds(held.hold)).toEqual(hold)
})

/** Times as seconds from now. */
function inSeconds(hold: object): object {
  const seconds = (value: unknown) => (value instanceof Date ? (value.getTime() * 1000 - NOW) / SECOND : value)
  return Object.fromEntries(Object.entries(hold).map(([field, value]) => [field, seconds(value)]))
}
