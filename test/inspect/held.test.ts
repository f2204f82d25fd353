import { expect, test } from 'vitest'
import { type HeldQueue, heldAt } from '../../src/inspect/held.ts'

type MeterFields = Readonly<Record<string, string>>

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
  holds,
  holdsUntil: untilUs === undefined ? '' : String(untilUs),
  heldAt: String(NOW - 4 * SECOND),
  holdsSince: String(NOW - 9 * SECOND),
})

test.each<[string, MeterFields, Partial<HeldQueue>, object | undefined]>([
  ['nothing waits', found('rate', NOW + SECOND), { isWaiting: false }, undefined],
  ['the rate', found('rate', NOW + SECOND), {}, { cause: 'rate', since: -9, until: 1 }],
  ['the rate, until its slot; a worker since', found('rate', NOW - SECOND), {}, { cause: 'workers', since: -1 }],
  ['a limit', found('limits:llm:a', NOW + 2 * SECOND), {}, { cause: 'limits', limit: 'llm:a', since: -9, until: 2 }],
  ['running jobs', found('concurrency'), {}, { cause: 'concurrency', since: -9 }],
  [
    'running jobs that have ended, whose workers closed',
    found('concurrency'),
    { active: 0 },
    { cause: 'workers', since: -4 },
  ],
  ['no worker', found('workers'), {}, { cause: 'workers', since: -9 }],
  [
    'a worker, while all take jobs',
    { ...found('workers'), seen: String(NOW - 2 * SECOND) },
    {},
    { cause: 'workers', since: -2 },
  ],
  [
    'a worker, while all take jobs that no rate holds',
    { ...found('workers'), leftAt: String(NOW - 3 * SECOND) },
    {},
    { cause: 'workers', since: -3 },
  ],
  ['a pause', found('pause'), { isPaused: true }, { cause: 'pause', since: -9 }],
  [
    'a pause that no worker has seen yet',
    found('rate', NOW + SECOND),
    { isPaused: true, pausedUntilUs: NOW + 60 * SECOND },
    { cause: 'pause', since: -4, until: 60 },
  ],
  ['nobody has looked since it was empty', found(''), {}, { cause: 'workers', since: -4 }],
  [
    'nobody has looked since a newer head came',
    found(''),
    { headReadyUs: NOW - SECOND },
    { cause: 'workers', since: -1 },
  ],
  ['a word of a later version', found('weather'), {}, { cause: 'workers', since: -4 }],
  ['a queue of an older version', {}, {}, { cause: 'workers', since: -30 }],
])('what holds the head: %s', (_, meter, queue, hold) => {
  const held = heldAt(meter, { ...waiting, ...queue })
  expect(held.hold && inSeconds(held.hold)).toEqual(hold)
})

/** Times as seconds from now. */
function inSeconds(hold: object): object {
  const seconds = (value: unknown) => (value instanceof Date ? (value.getTime() * 1000 - NOW) / SECOND : value)
  return Object.fromEntries(Object.entries(hold).map(([field, value]) => [field, seconds(value)]))
}
