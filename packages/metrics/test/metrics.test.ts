import type { Job } from 'bullmq'
import { Counter, type OpenMetricsContentType, Registry } from 'prom-client'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { HOLD_CAUSES } from '../../../src/departure/departure.ts'
import { QueueFullError } from '../../../src/index.ts'
import { Inspector } from '../../../src/inspect/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { departuresOf, eventsOf, gate, jobs, Workshop } from '../../../test/worker/support.ts'
import { createMetrics, METRICS, type Metrics, type MetricsOptions } from '../src/create-metrics.ts'
import { readScrape, type Scrape, sample, samples } from './support/scrape.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const { connection, prefix } = redis

/** Workers tell of themselves once in two seconds. */
const TOLD = { timeout: 60_000, interval: 100 }

const open: Metrics[] = []
afterEach(async () => {
  vi.restoreAllMocks()
  for (const metrics of open.splice(0)) await metrics.close()
})

function metricsOf(options: Partial<MetricsOptions> = {}): Metrics {
  const metrics = createMetrics({ connection, prefix, ...options })
  open.push(metrics)
  return metrics
}

async function scrapeOf(metrics: Metrics): Promise<Scrape> {
  return readScrape(await metrics.text())
}

test('the scrape, the inspector and the processors count the same jobs', async () => {
  const queue = shop.queue({ rate: '400/s', capacity: 60 })
  const opened = gate()
  let processed = 0
  const process = async (job: Job) => {
    processed += 1
    if (job.name === 'job3') throw new Error('told to')
    await opened.opened
  }
  await queue.addBulk(jobs(60))
  for (let i = 0; i < 7; i++) await expect(queue.add('one more', {})).rejects.toThrow(QueueFullError)
  const worker = shop.worker(queue, process, { concurrency: 5 })
  const [done, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  opened.open()
  await Promise.all([done.reach(59), failed.reach(1)])
  await worker.close()

  const inspector = shop.keep(new Inspector({ connection, prefix }))
  const status = async () => (await inspector.status([queue.name]))[0]
  await vi.waitFor(async () => expect((await status())?.starts).toMatchObject({ count: 60, waits: 60 }), TOLD)
  const [now, scrape] = [await status(), await scrapeOf(metricsOf({ queues: [queue.name] }))]
  const of = (name: string, labels = {}) => sample(scrape, name, { queue: queue.name, ...labels })

  expect(processed).toBe(60)
  expect(of('sluice_released_total')).toBe(processed)
  expect(now?.departedTotal).toBe(processed)
  expect(of('sluice_accepted_total')).toBe(60)
  expect(of('sluice_accepted_total')).toBe(now?.acceptedTotal)
  expect(of('sluice_refused_total', { reason: 'full' })).toBe(7)
  expect(of('sluice_refused_total', { reason: 'late' })).toBe(0)
  expect(now?.refusedTotal).toBe(7)
  expect(of('sluice_lateness_seconds_count')).toBe(processed)
  expect(of('sluice_lateness_seconds_bucket', { le: '+Inf' })).toBe(processed)
  expect(of('sluice_lateness_seconds_sum')).toBeCloseTo((now?.starts.latenessSumMs as number) / 1000, 9)
  expect(of('sluice_wait_seconds_count')).toBe(processed)
  expect(of('sluice_wait_seconds_sum')).toBeCloseTo((now?.starts.waitSumMs as number) / 1000, 9)
  for (const cause of HOLD_CAUSES) {
    const waited = of('sluice_waited_seconds_total', { cause })
    expect(waited).toBeCloseTo((now?.starts.waitedMs[cause] as number) / 1000, 9)
  }
  expect(of('sluice_conformance_violations_total', { check: 'early' })).toBe(0)
  expect(of('sluice_backlog_jobs')).toBe(0)
  expect(of('sluice_capacity_jobs')).toBe(60)
  expect(of('sluice_rate_units_per_second')).toBe(400)
})

test('what waits, runs, pauses and works is told as it is', async () => {
  const queue = shop.queue({ rate: '1/min', burst: 2, concurrency: 1 })
  await queue.addBulk([...jobs(4), { name: 'later', data: { i: 9 }, opts: { delay: 3_600_000 } }])
  const [opened, started] = [gate(), gate()]
  const worker = shop.worker(
    queue,
    async () => {
      started.open()
      await opened.opened
    },
    { concurrency: 4 },
  )
  await started.opened
  await queue.pauseUntil(Date.now() + 60_000, { reason: 'test' })
  const metrics = metricsOf({ queues: [queue.name] })
  const scrape = await vi.waitFor(async () => {
    const found = await scrapeOf(metrics)
    expect(sample(found, 'sluice_workers', { queue: queue.name, state: 'running' })).toBe(1)
    return found
  }, TOLD)
  const of = (name: string, labels = {}) => sample(scrape, name, { queue: queue.name, ...labels })
  expect(of('sluice_jobs', { state: 'waiting' })).toBe(3)
  expect(of('sluice_jobs', { state: 'active' })).toBe(1)
  expect(of('sluice_jobs', { state: 'delayed' })).toBe(1)
  expect(of('sluice_backlog_jobs')).toBe(4)
  expect(of('sluice_capacity_jobs')).toBeUndefined()
  expect(of('sluice_bucket_burst_units')).toBe(2)
  expect(of('sluice_rate_units_per_second')).toBeCloseTo(1 / 60, 9)
  expect(of('sluice_paused', { pause: 'meter' })).toBe(1)
  expect(of('sluice_paused', { pause: 'queue' })).toBe(0)
  expect(of('sluice_oldest_age_seconds')).toBeGreaterThan(0)
  opened.open()
  await worker.close()
})

test('groups: how many are in each state; those with labels are as many as asked for, the rest is summed', async () => {
  const queue = shop.queue({ rate: '100/s', groups: {} })
  const inGroup = (id: string, count: number) => jobs(count, { group: { id } })
  await queue.addBulk([...inGroup('old', 1), ...inGroup('large', 50), ...inGroup('b', 2), ...inGroup('other', 3)])
  await queue.pauseGroup('old', { by: 'ann', reason: 'test' })
  const unlabelled = await scrapeOf(metricsOf({ queues: [queue.name] }))
  const states = ['waiting', 'limited', 'maxed', 'paused']
  const counts = states.map((state) => sample(unlabelled, 'sluice_groups', { queue: queue.name, state }))
  expect(counts.reduce((sum = 0, count = 0) => sum + count)).toBe(4)
  expect(samples(unlabelled, 'sluice_group_waiting_jobs')).toEqual([])
  const scrape = await scrapeOf(metricsOf({ queues: [queue.name], groups: 1 }))
  const waiting = (group: string) => sample(scrape, 'sluice_group_waiting_jobs', { queue: queue.name, group })
  expect(['old', 'large', 'b', 'other'].map(waiting)).toEqual([1, 50, undefined, 5])
  expect(sample(scrape, 'sluice_group_head_age_seconds', { queue: queue.name, group: 'old' })).toBeGreaterThan(0)
})

describe('queues beyond maxQueues', () => {
  test('are told together, and lose nothing', async () => {
    const queues = [1, 2, 3].map((places) => shop.queue({ rate: '100/s', capacity: places }))
    await Promise.all(queues.map((queue, i) => queue.addBulk(jobs(i + 1))))
    const names = queues.map(({ name }) => name)
    const scrape = await scrapeOf(metricsOf({ queues: names, maxQueues: 1 }))
    expect(sample(scrape, 'sluice_backlog_jobs', { queue: names[0] as string })).toBe(1)
    expect(sample(scrape, 'sluice_backlog_jobs', { queue: 'other' })).toBe(5)
    expect(sample(scrape, 'sluice_capacity_jobs', { queue: 'other' })).toBe(5)
    expect(samples(scrape, 'sluice_backlog_jobs')).toHaveLength(2)
    expect(sample(scrape, 'sluice_wait_seconds_bucket', { queue: 'other', le: '+Inf' })).toBe(0)
    const ages = sample(scrape, 'sluice_oldest_age_seconds', { queue: 'other' }) as number
    expect(ages).toBeLessThan(60)
  })
})

test('without names, all queues that have a shape are told', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.add('job', {})
  await eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  ).reach(1)
  await vi.waitFor(async () => {
    expect(sample(await scrapeOf(metricsOf()), 'sluice_backlog_jobs', { queue: queue.name })).toBe(0)
  }, TOLD)
})

test('a look is shared by all metrics of a scrape, and by scrapes that come together', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.add('job', {})
  const status = vi.spyOn(Inspector.prototype, 'statuses')
  const metrics = metricsOf({ queues: [queue.name] })
  const [one, other] = await Promise.all([metrics.text(), metrics.text()])
  expect(status).toHaveBeenCalledTimes(1)
  expect(other).toBe(one)
  await metrics.text()
  expect(status).toHaveBeenCalledTimes(2)
})

describe('the registry', () => {
  test('may be the user’s, whose metrics stay', async () => {
    const register = new Registry()
    new Counter({ name: 'mine_total', help: 'Mine.', registers: [register] }).inc(3)
    const metrics = createMetrics({ connection, prefix, register, queues: [] })
    expect(sample(await scrapeOf(metrics), 'mine_total')).toBe(3)
    expect(register.getMetricsAsArray()).toHaveLength(METRICS.length + 1)
    await metrics.close()
    expect(register.getMetricsAsArray()).toHaveLength(1)
  })

  test('that has metrics of these names is refused before anything is changed', () => {
    const register = new Registry()
    new Counter({ name: 'sluice_workers', help: 'Another.', registers: [register] })
    expect(() => createMetrics({ connection, prefix, register })).toThrow(
      'register must have no metric named sluice_workers; it has one',
    )
    expect(register.getMetricsAsArray()).toHaveLength(1)
  })

  test('may be one of OpenMetrics', async () => {
    const queue = shop.queue({ rate: '100/s' })
    await queue.add('job', {})
    const register = new Registry<OpenMetricsContentType>()
    register.setContentType(Registry.OPENMETRICS_CONTENT_TYPE)
    const text = await metricsOf({ queues: [queue.name], register }).text()
    expect(text).toContain(`\nsluice_accepted_total{queue="${queue.name}"} 1\n`)
    expect(text).toContain(`\nsluice_wait_seconds_bucket{queue="${queue.name}",le="+Inf"} 0\n`)
    expect(text).toMatch(/\n# EOF\n$/)
  })

  test.each([
    [{ maxQueues: 0 }, 'maxQueues must be a whole number > 0; got 0'],
    [{ groups: -1 }, 'groups must be a whole number > 0; got -1'],
    [{ timeoutMs: 0.5 }, 'timeoutMs must be a whole number > 0; got 0.5'],
  ])('is left alone for %j', (options, message) => {
    const register = new Registry()
    expect(() => createMetrics({ connection, prefix, register, ...options })).toThrow(message)
    expect(register.getMetricsAsArray()).toEqual([])
  })
})

test('every metric is told, and every label says only what it may', async () => {
  const queue = shop.queue({ rate: '100/s', capacity: 5, concurrency: 2 })
  await queue.add('job', {})
  await eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  ).reach(1)
  const metrics = metricsOf({ queues: [queue.name] })
  await vi.waitFor(async () => {
    const scrape = await scrapeOf(metrics)
    expect(sample(scrape, 'sluice_workers', { queue: queue.name, state: 'running' })).toBe(1)
    // It begins to tell before it knows Redis's clock.
    expect(sample(scrape, 'sluice_clock_error_seconds', { queue: queue.name })).toBeGreaterThan(0)
  }, TOLD)
  const told = await metrics.register.getMetricsAsJSON()
  expect(told.map(({ name }) => name)).toEqual(METRICS.map(({ name }) => name))
  const silent = told.filter(({ values }) => values.length === 0).map(({ name }) => name)
  expect(silent).toEqual([
    ...['sluice_replication_lag_seconds', 'sluice_redis_memory_max_bytes', 'sluice_unread_queues'],
    'sluice_feedback_changes_total',
    ...['sluice_groups', 'sluice_group_waiting_jobs', 'sluice_group_head_age_seconds', 'sluice_key_waiting_lanes'],
    ...['sluice_key_places', 'sluice_key_used_ratio'],
  ])
  for (const { name, values } of told) {
    const { labels } = METRICS.find((one) => one.name === name) as (typeof METRICS)[number]
    for (const value of values) {
      const { le: _, ...own } = value.labels as Record<string, string>
      expect(Object.keys(own).toSorted(), name).toEqual(Object.keys(labels).toSorted())
      for (const [label, text] of Object.entries(own)) {
        expect(label === 'queue' ? [queue.name] : labels[label], `${name} ${label}`).toContain(text)
      }
    }
  }
})

test('keys: the values that most lanes wait for have labels, the rest is summed', async () => {
  const queue = shop.queue({ limits: [{ name: 'rpm', by: 'model', rate: '1/h' }] })
  const waitFor = (model: string, tenants: number) =>
    Array.from({ length: tenants }, (_, i) => jobs(2, { group: { id: `${model}${i}` }, keys: { model } })).flat()
  await queue.addBulk([...waitFor('a', 2), ...waitFor('b', 4), ...waitFor('c', 3)])
  const worker = shop.worker(queue, async () => {})
  const read = (keys: number) => scrapeOf(metricsOf({ queues: [queue.name], keys }))
  const lanes = (scrape: Scrape, limit: string, key: string) =>
    sample(scrape, 'sluice_key_waiting_lanes', { queue: queue.name, limit, key })
  await expect.poll(async () => lanes(await read(9), 'rpm', 'model a')).toBe(2)
  const scrape = await read(1)
  // Of each model one job has left.
  expect(lanes(scrape, 'rpm', 'model b')).toBe(4)
  expect(lanes(scrape, 'rpm', 'model a')).toBeUndefined()
  expect(lanes(scrape, 'other', 'other')).toBe(5)
  expect(samples(await read(0), 'sluice_key_waiting_lanes')).toEqual([])
  await worker.close()
})

test('keys: what the values hold is shown, places of the rest are summed', async () => {
  const running = { name: 'running', by: 'model', algorithm: 'concurrency', concurrency: 4 } as const
  const tokens = { name: 'tpm', by: 'model', unit: 'tokens', algorithm: 'fixed-window', rate: '1000/day' } as const
  const queue = shop.queue({ limits: [running, tokens] })
  const busy = gate()
  const departed = departuresOf(shop.worker(queue, () => busy.opened, { concurrency: 10 }))
  const of = (model: string, count: number) => jobs(count, { keys: { model }, costs: { tokens: 100 } })
  await queue.addBulk([...of('a', 3), ...of('b', 2), ...of('c', 1)])
  await departed.reach(6)
  const scrape = await scrapeOf(metricsOf({ queues: [queue.name], keys: 2 }))
  const held = (name: string, limit: string, key: string) => sample(scrape, name, { queue: queue.name, limit, key })
  expect(samples(scrape, 'sluice_key_places')).toHaveLength(2)
  expect(held('sluice_key_places', 'running', 'model a')).toBe(3)
  expect(held('sluice_key_places', 'other', 'other')).toBe(3)
  expect(samples(scrape, 'sluice_key_used_ratio')).toHaveLength(2)
  expect(held('sluice_key_used_ratio', 'running', 'model a')).toBe(0.75)
  expect(held('sluice_key_used_ratio', 'tpm', 'model a')).toBe(0.3)
  expect(samples(scrape, 'sluice_key_waiting_lanes')).toEqual([0])
  busy.open()
})
