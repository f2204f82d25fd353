import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts'
import { Workshop } from '../../../../test/worker/support.ts'
import { useSluice } from '../sluice-process.ts'

const redis = useRedis(import.meta.url)
const sluice = useSluice(redis)
const shop = new Workshop(redis)
/** Processes take their time to start on a busy machine. */
const SLOW = { timeout: 120_000 }

test('several shapes side by side: a table, a plot, JSON', SLOW, async () => {
  const folder = temporaryFolder()
  const queue = shop.queue({ rate: '4/s', burst: 2, capacity: 20 })
  await queue.waitUntilReady()
  const file = join(folder, 'plot.svg')
  const load = ['simulate', '--load', '5/s for 2m, 1/s for 1m', '--pattern', 'even', '--queue', queue.name]
  const { code, stdout, stderr } = await sluice.run([...load, '--shape', 'rate=8/s,burst=10', '--svg', file])
  expect(stderr).toMatch(/rate=8\/s,burst=10: 660 arrivals in/)
  expect(code).toBe(0)
  expect(stdout).toMatch(
    /shape +accepted +refused +p50 +p95 +p99 +max wait +longest queue +utilisation +finished after/,
  )
  expect(stdout).toMatch(/rate=8\/s,burst=10 +660 +0 \(0%\) +0ms/)
  expect(stdout).toMatch(new RegExp(`${queue.name} as it is: \\d+ found no place`))
  expect(await readFile(file, 'utf8')).toContain(`>${queue.name} as it is</tspan>`)
  const { shapes } = await sluice.json(load)
  expect(shapes).toMatchObject([{ label: `${queue.name} as it is`, arrivals: 660, longestQueue: 20 }])
  // 5/s come and 4/s leave: of the 600 about 100 find no place.
  expect(shapes[0].refused).toBeGreaterThan(90)
  expect(shapes[0].refused).toBeLessThan(110)
  expect(shapes[0].waitMs.max).toBeLessThan(5300)
})

test('the shape of a queue whose rate follows the clock is taken as it is', SLOW, async () => {
  const queue = shop.queue({ rate: { schedule: [{ days: 'mon', from: '00:01', rate: '5/s' }, { rate: '1/s' }] } })
  await queue.waitUntilReady()
  const file = join(temporaryFolder(), 'plot.svg')
  const load = ['simulate', '--load', '2/s for 2m', '--pattern', 'even', '--queue', queue.name, '--svg', file]
  const { shapes } = await sluice.json(load)
  // In the first minute half of what comes is left behind.
  expect(shapes[0].longestQueue).toBeGreaterThan(55)
  expect(shapes[0].waitMs.max).toBeLessThan(35_000)
  const plot = await readFile(file, 'utf8')
  expect(plot).toContain('Effective rate (units per second)')
  expect(plot).toContain('from Mon, 01 Jan 2024 00:00:00 GMT')
})

test('a limit per group holds the busiest of ten groups, and none of the others', SLOW, async () => {
  const load = ['simulate', '--load', '9/s for 2m', '--groups', '10', '--json']
  const limits = '[{"name":"own","by":"group","algorithm":"sliding-window-log","rate":"90/min"}]'
  const found = await sluice.run([...load, '--shape', `{"rate":"20/s","groups":{},"limits":${limits}}`])
  const [{ groups }] = JSON.parse(found.stdout).shapes
  expect(groups.longestWait.ms).toBeGreaterThan(10_000)
  expect(groups.medianLongestWaitMs).toBeLessThan(2000)
})

test('limits that follow the clock, and quotas that are spread, hold jobs as long as they will', SLOW, async () => {
  const load = ['simulate', '--load', '6/min for 2h', '--pattern', 'even', '--json']
  const schedule = { schedule: [{ from: '00:00', to: '01:00', rate: 0 }, { rate: '60/min' }] }
  const limits = [
    { name: 'quiet', rate: schedule },
    { name: 'daily', rate: '1440/day', spread: 'even', within: '00:00-04:00' },
  ]
  const found = await sluice.run([...load, '--shape', JSON.stringify({ limits })])
  const [{ waitMs, finishedAfterMs }] = JSON.parse(found.stdout).shapes
  // From 01:00 on, 1,440 are spread over three hours: 720 take 90 minutes.
  expect(Math.abs(waitMs.max - 3_600_000)).toBeLessThan(60_000)
  expect(Math.abs(finishedAfterMs - 9_000_000)).toBeLessThan(60_000)
})

test('groups: one line beside turns, with fairness as a column', SLOW, async () => {
  const load = ['simulate', '--load', '9/s for 2m', '--groups', '10', '--shape', 'rate=8/s']
  const fair = '{"rate":"8/s","groups":{}}'
  const { stdout, code } = await sluice.run([...load, '--shape', fair])
  expect(code).toBe(0)
  expect(stdout).toMatch(/finished after +fairness\n/)
  expect(stdout).toMatch(/^\{"rate":"8\/s","groups":\{\}\} +\d/m)
  expect(stdout).toMatch(/of 10 groups, group-\d+ waited longest, up to .*; the median group up to/)
  const { shapes } = await sluice.json([...load, '--shape', fair])
  expect(shapes[1].groups.fairness).toBeGreaterThanOrEqual(shapes[0].groups.fairness)
  expect(shapes[1].groups.medianLongestWaitMs).toBeLessThan(shapes[0].groups.medianLongestWaitMs)
  expect((await sluice.run([...load.slice(0, 4), '0.5', '--shape', fair])).code).toBe(2)
})

test('a long shape is a number in the table, and a line of its own before it', SLOW, async () => {
  const long = '{"rate":"8/s","burst":10,"capacity":1000,"concurrency":20}'
  const load = ['simulate', '--load', '9/s for 10s', '--job-time', '100ms']
  const { stdout } = await sluice.run([...load, '--shape', 'rate=9/s', '--shape', long])
  expect(stdout).toMatch(/^shape 2: \{"rate":"8\/s","burst":10,"capacity":1000,"concurrency":20\}\nshape +accepted/)
  expect(stdout).toMatch(/^rate=9\/s +\d/m)
  expect(stdout).toMatch(/^shape 2 +\d/m)
  expect(stdout).toMatch(/^shape 2: concurrency/m)
})

test('what is set for groups of a queue is simulated, and so is what a shape sets', SLOW, async () => {
  const queue = shop.queue({ rate: '50/s', groups: {} })
  await queue.setGroup('group-1', { rate: '1/s' }, { by: 'ann', reason: 'trial' })
  await queue.pauseGroup('group-2', { by: 'ann', reason: 'for now' })
  const load = ['simulate', '--load', '10/s for 30s', '--groups', '3', '--pattern', 'even']
  const set = '{"rate":"50/s","groups":{},"setGroup":{"group-1":{"rate":"1/s"},"group-2":{"weight":2}}}'
  const shapes = ['--queue', queue.name, '--shape', set, '--shape', '{"rate":"50/s","groups":{}}']
  const waits = (await sluice.json([...load, ...shapes])).shapes.map(({ waitMs }: { waitMs: object }) => waitMs)
  expect(waits[0].max).toBeGreaterThan(30_000)
  expect(waits[1]).toEqual(waits[0])
  expect(waits[2].max).toBeLessThan(100)
  expect((await sluice.run([...load, '--shape', '{"rate":"1/s","setGroup":{"a":{"weight":2}}}'])).code).toBe(2)
})

test('arrivals of stdin; concurrency that binds is told of', SLOW, async () => {
  const input = Array.from({ length: 20 }, (_, i) => `${1_764_000_000_000 + i}`).join('\n')
  const args = ['simulate', '--arrivals', '-', '--shape', 'rate=100/s', '--job-time', '2s', '--concurrency', '5']
  const { code, stdout } = await sluice.run(args, { input })
  expect(code).toBe(0)
  expect(stdout).toContain('concurrency binds: 75% of the starts waited for a place; the places are 99.5% in use')
})

test('what was recorded is simulated; SIGINT ends a recording with a summary', SLOW, async () => {
  const folder = temporaryFolder()
  const queue = shop.queue({ rate: '1/s' })
  await queue.addBulk([
    { name: 'a', data: {} },
    { name: 'b', data: {}, opts: { cost: 1 } },
  ])
  const file = join(folder, 'arrivals.ndjson')
  const recording = sluice.start(['record', queue.name, '--since', '2020-01-01T00:00:00Z', '--out', file])
  await expect.poll(async () => (await readFile(file, 'utf8').catch(() => '')).split('\n').length, SLOW).toBe(3)
  recording.child.kill('SIGINT')
  expect(await recording.ended).toMatchObject({
    code: 0,
    stdout: '',
    stderr: expect.stringContaining('recorded 2 arrivals'),
  })
  const { shapes } = await sluice.json(['simulate', '--arrivals', file, '--shape', 'rate=1/s'])
  expect(shapes[0]).toMatchObject({ arrivals: 2, accepted: 2, waitMs: { p50: expect.any(Number) } })
  const printed = await sluice.run(['record', queue.name, '--since', '2020-01-01T00:00:00Z', '--count', '1'])
  expect(JSON.parse(printed.stdout)).toMatchObject({ name: 'a', cost: 1 })
})

test('what can not be simulated', SLOW, async () => {
  const folder = temporaryFolder()
  const file = join(folder, 'wrong.ndjson')
  await writeFile(file, '1764000000000\nyesterday\n')
  const wrong = [
    [['--load', '5/s for 1m'], 2, 'expected a --shape or a --queue'],
    [['--shape', 'rate=1/s', '--load', '5/s'], 2, "expected a load such as '5/s for 1d'"],
    [['--shape', 'rate=1/s', '--arrivals', file], 2, 'line 2: expected a time'],
    [['--shape', 'rate=1/s', '--arrivals', join(folder, 'none')], 2, 'cannot read'],
    [['--shape', 'rate=1/s', '--load', '5/s for 1m', '--svg', join(folder, 'none', 'x.svg')], 2, 'cannot write'],
    [['--queue', 'nobody', '--load', '5/s for 1m'], 4, 'no queue "nobody"'],
  ] as const
  const ended = await Promise.all(wrong.map(([args]) => sluice.run(['simulate', ...args])))
  expect(ended.map(({ code }) => code)).toEqual(wrong.map(([, code]) => code))
  for (const [i, { stderr }] of ended.entries()) expect(stderr).toContain(wrong[i]?.[2])
})
