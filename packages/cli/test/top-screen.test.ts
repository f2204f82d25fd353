import pc from 'picocolors'
import { expect, test } from 'vitest'
import type { RedisState } from '../../../src/inspect/redis-state.ts'
import type { Cli } from '../src/cli.ts'
import { formatTable } from '../src/open-cli.ts'
import { fleetTable } from '../src/queue-text.ts'
import { topScreen } from '../src/top-screen.ts'
import type { QueueFlow } from '../src/watch-queues.ts'

const cli = { colors: pc.createColors(false), table: (head, rows, fit) => formatTable(head, rows, fit) } as Cli

const WORKER = {
  ...{ host: 'mail-worker-7f9c4d-x2x9z.internal', pid: 4711, name: 'emails', state: 'running', running: 12 },
  ...{ concurrency: 100, held: 3, started: 1_234_567, ratePerSecond: 49.87, latenessMaxMs: 12.3, roundTripMs: 1.2 },
  ...{ clockErrorMs: 0.4, loopUtilisation: 0.42 },
}
const QUEUE = {
  ...{
    name: 'transactional-emails-of-region-europe-west',
    rate: '12,500/15min',
    cause: 'meter paused',
    depth: 123_456,
  },
  ...{ capacity: 1_000_000, active: 120, headAgeMs: 80_000, oldestAgeMs: 8_000_000, arrivalsPerSecond: 120.25 },
  ...{
    departuresPerSecond: 49.87,
    refusalsPerSecond: 12.5,
    completionsPerSecond: 40,
    failuresPerSecond: 9.5,
    workers: [WORKER],
  },
  hold: { cause: 'concurrency', group: 'tenant-4711-of-some-length' },
  conditions: [],
} as unknown as QueueFlow

const MASTER: RedisState = { role: 'master' }
const screen = (columns: number, queues: readonly QueueFlow[] = [QUEUE], redis = MASTER) =>
  topScreen(cli, { queues, total: 1200, redis, at: new Date(0), trouble: 'x'.repeat(200) }, 24, columns).split('\n')
const widest = (lines: readonly string[]) => Math.max(...lines.map(({ length }) => length))

test('at 80 columns no line is wider, and what matters most stays', () => {
  const lines = screen(80)
  expect(widest(lines)).toBeLessThanOrEqual(80)
  const [head = '', row = ''] = lines.slice(3)
  for (const column of ['queue', 'out/s', 'rate', 'depth', 'held by']) expect(head).toContain(column)
  expect(row).toMatch(/^transactio…rope-west +49\.87 +12,500\/15min +123,456\/1,000,000 +the conc…-length$/)
  expect(lines.find((line) => line.startsWith('worker'))).toMatch(/running +starts\/s +.*state/)
})

test('a table that fits has all of its columns', () => {
  const head = 'queue state in/s out/s refused/s done/s failed/s rate cause depth active head age held by'
  expect(screen(250)[3]?.replaceAll(/ +/g, ' ')).toBe(head)
  const short = { ...QUEUE, name: 'sms', oldestAgeMs: undefined, hold: { cause: 'rate' }, rate: '5/s', workers: [] }
  const small = screen(110, [{ ...short, capacity: undefined, cause: 'declared' } as unknown as QueueFlow])
  expect(small[3]?.replaceAll(/ +/g, ' ')).toBe(head)
  expect(widest(small)).toBeLessThanOrEqual(110)
})

test('what starts past the meter stands beside what departs', () => {
  const [, row = ''] = screen(250, [
    { ...QUEUE, bypass: { perSecond: 6.7 }, bypassesPerSecond: 13.4 } as unknown as QueueFlow,
  ]).slice(3)
  expect(row).toContain(' 49.87 (+6.7) ')
})

const troubled = (name: string, ...conditions: readonly (readonly [name: string, level: string, weight: number])[]) =>
  ({
    ...QUEUE,
    name,
    conditions: conditions.map(([what, level, weight]) => ({
      ...{ name: what, level, weight },
      text: `what is wrong with ${name} ${'in many words '.repeat(9)}`,
    })),
  }) as unknown as QueueFlow

test.each([80, 140])('what needs a look stands above the tables at %i columns, the worst first', (columns) => {
  const queues = [
    troubled('late', ['Starving', 'warning', 2]),
    troubled('sms', ['Bypassed', 'error', 8], ['Override', 'note', 1]),
    troubled('tried', ['Shadow', 'note', 1]),
    QUEUE,
  ]
  const memory = { usedBytes: 2 ** 26, maxBytes: 2 ** 26 }
  const lines = screen(columns, queues, { role: 'master', memory, refusesWrites: 'memory' })
  expect(widest(lines)).toBeLessThanOrEqual(columns)
  const [redis, first, second, none] = lines.slice(2)
  expect(redis).toBe('Redis  Writes refused: its memory is full (100% of 64 MB): no job can be added')
  expect(first).toMatch(/^sms {2}Bypassed: what is wrong with sms .*…$/)
  expect(second).toMatch(/^late {2}Starving: what is wrong with late .*…$/)
  expect(none).toBe('')
  if (columns < 140) return
  const rows = ['late +Starving ', 'sms +Bypassed \\+1 ', 'tried +Shadow ', 'transactional-e\\S+ +— ']
  for (const [i, row] of rows.entries()) expect(lines[7 + i]).toMatch(new RegExp(`^${row}`))
})

test('of many queues in trouble it names the worst five, and how many more there are', () => {
  const lines = screen(
    80,
    Array.from({ length: 9 }, (_, i) => troubled(`q${i}`, ['Full', 'warning', 100 - i])),
  )
  expect(lines.slice(2, 8).map((line) => line.slice(0, 8))).toEqual([
    ...Array.from({ length: 5 }, (_, i) => `q${i}  Full`),
    '… 4 more',
  ])
  expect(lines[7]).toBe('… 4 more queues to look at: sluice status')
})

test.each([80, 140])('the table of status fits %i columns too, and keeps what matters most', (columns) => {
  const queue = troubled(QUEUE.name, ['Bypassed', 'error', 8], ['Groups held', 'warning', 1])
  const lines = fleetTable(
    cli,
    [{ ...queue, refusedTotal: 12_345, completedTotal: 1_234_567, failedAttemptsTotal: 9 }],
    columns,
  )
  expect(widest(lines.split('\n'))).toBeLessThanOrEqual(columns)
  expect(lines).toMatch(/^queue +state .*depth/)
  expect(lines).toContain('Bypassed, Groups held')
  expect(fleetTable(cli, [queue])).toContain(QUEUE.name)
})
