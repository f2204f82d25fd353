import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { departuresOf, Workshop } from '../../../../test/worker/support.ts'
import { type RecordOptions, recordArrivals } from '../../src/commands/record.ts'
import type { RecordedArrival } from '../../src/simulate/arrival.ts'
import { randomOf } from '../../src/simulate/random.ts'
import { readArrivals } from '../../src/simulate/read-arrivals.ts'
import { FATE, simulate } from '../../src/simulate/simulation.ts'
import { percentile, waitsMs } from '../../src/simulate/summary.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

async function record(queue: { name: string }, options: RecordOptions) {
  const found: RecordedArrival[] = []
  const base = `${redis.prefix}:${queue.name}:`
  const recording = await recordArrivals(client, base, options, (arrival) => {
    found.push(arrival)
  })
  return { recording, found }
}

const longAgo = new Date(0)

test('what came before, with all that a simulation needs', async () => {
  const queue = shop.queue({ rate: '1/min', burst: 5, groups: {} })
  const before = Date.now()
  await queue.add('plain', {})
  await queue.add('dear', {}, { cost: 3, costs: { tokens: 70 }, priority: 4 })
  await queue.add('later', {}, { delay: 5000, jobId: 'mine' })
  await queue.add('grouped', {}, { group: { id: 'a', priority: 2 } })
  await queue.add('keyed', {}, { keys: { model: 'large', tier: 3 }, tier: 'pro' })
  const { recording, found } = await record(queue, { since: longAgo, count: 5 })
  expect(recording).toEqual({ arrivals: 5, gone: 0, refused: 0, isIncomplete: false })
  expect(found).toEqual([
    { at: expect.any(Number), id: expect.any(String), name: 'plain', cost: 1 },
    { at: expect.any(Number), id: expect.any(String), name: 'dear', cost: 3, costs: { tokens: 70 }, priority: 4 },
    { at: expect.any(Number), id: 'mine', name: 'later', cost: 1, delay: 5000 },
    { at: expect.any(Number), id: expect.any(String), name: 'grouped', cost: 1, group: { id: 'a', priority: 2 } },
    {
      at: expect.any(Number),
      id: expect.any(String),
      name: 'keyed',
      cost: 1,
      keys: { model: 'large', tier: '3' },
      tier: 'pro',
    },
  ])
  for (const { at } of found) {
    expect(at).toBeGreaterThanOrEqual(before)
    expect(at).toBeLessThanOrEqual(Date.now())
  }
})

test('what comes while it follows, and nothing from before', async () => {
  const queue = shop.queue({ rate: '1/min' })
  await queue.add('before', {})
  const recorder = redis.client()
  const clientId = await recorder.client('ID')
  const names: string[] = []
  const base = `${redis.prefix}:${queue.name}:`
  const following = recordArrivals(recorder, base, { count: 2 }, ({ name }) => {
    names.push(name)
    if (names.length === 1) void queue.add('second', {})
  })
  // It has read the end of the stream once it waits there.
  await expect.poll(async () => String(await client.client('LIST', 'ID', clientId)).includes('cmd=xread')).toBe(true)
  await queue.add('first', {})
  expect((await following).arrivals).toBe(2)
  expect(names).toEqual(['first', 'second'])
})

test('it ends when its time is over, and when it is told to', async () => {
  const queue = shop.queue({ rate: '1/min' })
  await queue.add('one', {})
  expect((await record(queue, { forMs: 50 })).recording.arrivals).toBe(0)
  // A stretch of the past is read and not waited for.
  const { recording } = await record(queue, { since: new Date(Date.now() - 60_000), forMs: 59_000 })
  expect(recording.arrivals).toBe(0)
  expect((await record(queue, { signal: AbortSignal.abort() })).recording.arrivals).toBe(0)
})

test('jobs that are gone count as one unit, and so do those that were refused', async () => {
  const queue = shop.queue({ rate: '1/min', capacity: 2 })
  const job = await queue.add('gone', {}, { cost: 1 })
  await job.remove()
  await queue.add('a', {})
  await queue.add('b', {})
  await expect(queue.add('refused', {})).rejects.toThrow('is full')
  const { recording, found } = await record(queue, { since: longAgo, forMs: Date.now() + 50 })
  expect(recording).toMatchObject({ arrivals: 4, gone: 1, refused: 1 })
  expect(found.map(({ name, cost }) => [name, cost])).toEqual([
    ['gone', 1],
    ['a', 1],
    ['b', 1],
    ['', 1],
  ])
})

test('a recording whose events were trimmed is not complete', async () => {
  const queue = shop.queue({ rate: '1/min' })
  for (const name of ['a', 'b', 'c']) await queue.add(name, {})
  await client.xtrim(`${redis.prefix}:${queue.name}:events`, 'MAXLEN', 2)
  expect((await record(queue, { since: longAgo, count: 1 })).recording.isIncomplete).toBe(true)
})

test('waits of a simulation are those of a real run of the same arrivals, within 5 %', {
  timeout: 180_000,
}, async () => {
  const shape = { rate: '20/s', burst: 3 }
  // A program that is held up for a moment neither asks too late for a slot nor gives one back.
  const queue = shop.queue({ ...shape, horizonMs: 2000, maxLatenessMs: 60_000 })
  await queue.waitUntilReady()
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 20 }))
  const random = randomOf(3)
  const total = 180
  // By chance, at more than the rate in the mean: a backlog comes up, and goes down at the end.
  const added = new Promise<void>((resolve, reject) => {
    let left = total
    const addNext = () => {
      queue.add('job', {}, random.uniform() < 0.2 ? { cost: 3 } : {}).catch(reject)
      left -= 1
      if (left === 0) resolve()
      else setTimeout(addNext, random.exponential() * 20)
    }
    addNext()
  })
  await added
  const departures = await departed.reach(total)
  const { found } = await record(queue, { since: longAgo, count: total })
  const arrivals = await readArrivals(found.map((one) => JSON.stringify(one)))
  const slots = new Map(departures.map(({ id, departureTimeUs }) => [id, departureTimeUs]))
  const waits = found.map(({ id, at }) => (slots.get(id as string) as number) / 1000 - at)
  // On a busy machine the worker hears late of the first job, and the bucket gives out all later slots from then on.
  const real = waits.map((ms) => ms - (waits[0] as number)).sort((a, b) => a - b)
  const outcome = await simulate(client, shape, arrivals, { places: 20, prefix: redis.prefix })
  expect(outcome.fates.every((fate) => fate === FATE.started)).toBe(true)
  const simulated = waitsMs(outcome, arrivals).sort()
  expect(percentile(real, 0.5)).toBeGreaterThan(2000)
  for (const part of [0.5, 0.95, 1]) {
    const ratio = percentile(simulated, part) / percentile(real, part)
    expect(ratio, `percentile ${part}: ${percentile(simulated, part)} of ${percentile(real, part)} ms`).toBeGreaterThan(
      0.95,
    )
    expect(ratio, `percentile ${part}: ${percentile(simulated, part)} of ${percentile(real, part)} ms`).toBeLessThan(
      1.05,
    )
  }
})
