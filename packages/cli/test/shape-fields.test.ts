import { Command } from 'commander'
import { expect, test } from 'vitest'
import { addFieldOptions, overrideFrom } from '../src/shape-fields.ts'

function overrideOf(...args: string[]) {
  const command = addFieldOptions(new Command('set'))
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
  return overrideFrom(command.parse(args, { from: 'user' }).opts())
}

test.each([
  [['--rate', '20/s'], { rate: '20/s' }],
  [['--burst', '3', '--capacity', '100'], { burst: 3, capacity: 100 }],
  [['--capacity-horizon', '10m'], { capacityHorizonMs: 600_000 }],
  [['--reserved-places', '1=50,10=100'], { reservedPlaces: { 1: 50, 10: 100 } }],
  [['--overflow', 'drop-oldest', '--overflow-to', 'dropped'], { overflow: 'drop-oldest', overflowTo: 'dropped' }],
  [['--max-wait', '90s', '--max-lateness', '50ms'], { maxWaitMs: 90_000, maxLatenessMs: 50 }],
  [['--priority-ageing', '2m'], { priorityAgeingMs: 120_000 }],
  [['--durability', '1'], { durability: { replicas: 1 } }],
  [['--durability', '2=500ms'], { durability: { replicas: 2, timeoutMs: 500 } }],
  [['--limits', '[{"name":"a","rate":"5/s"}]'], { limits: [{ name: 'a', rate: '5/s' }] }],
  [['--mode', 'shadow', '--audit', '1000', '--concurrency', '4'], { mode: 'shadow', audit: 1000, concurrency: 4 }],
  [['--rate', 'none', '--max-wait', 'none', '--limits', 'none'], { rate: null, maxWaitMs: null, limits: null }],
  [[], {}],
])('%j', (args, override) => {
  expect(overrideOf(...args)).toEqual(override)
})

test.each([
  [['--max-wait', '10'], 'expected a duration'],
  [['--reserved-places', '1:50'], "such as '1=50,10=100'"],
  [['--durability', 'one'], "such as '1', or '1=500ms'"],
  [['--limits', '[{'], 'expected a JSON list of limits'],
  [['--limits', '@/does/not/exist'], 'expected a JSON list of limits'],
])('%j is refused', (args, message) => {
  expect(() => overrideOf(...args)).toThrow(message)
})
