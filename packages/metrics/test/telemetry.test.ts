import { createRequire } from 'node:module'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { BullMQOtel } from 'bullmq-otel'
import { afterAll, afterEach, expect, test } from 'vitest'
import { CannotStartInTimeError, QueueFullError } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { departuresOf, eventsOf, gate, jobs, Workshop } from '../../../test/worker/support.ts'

const shop = new Workshop(useRedis(import.meta.url))
const exporter = new InMemorySpanExporter()
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
// That of bullmq-otel: with another version of the API it would not find the provider.
const { trace }: typeof import('@opentelemetry/api') = createRequire(import.meta.resolve('bullmq-otel'))(
  '@opentelemetry/api',
)
trace.setGlobalTracerProvider(provider)
const telemetry = new BullMQOtel({ tracerName: 'test' })
afterEach(() => exporter.reset())
afterAll(() => provider.shutdown())

async function spansNamed(name: string): Promise<ReadableSpan[]> {
  await provider.forceFlush()
  return exporter.getFinishedSpans().filter((span) => span.name === name)
}

/** The attributes that are not BullMQ's. */
function ownOf(span: ReadableSpan | undefined): Record<string, unknown> {
  return Object.fromEntries(Object.entries(span?.attributes ?? {}).filter(([name]) => !name.startsWith('bullmq.')))
}

test('the span of each job tells of its own departure, also of jobs that run at once', async () => {
  const queue = shop.queue({ rate: '50/s', burst: 2 }, { telemetry })
  const together = gate()
  let running = 0
  const process = async () => {
    running += 1
    if (running === 3) together.open()
    await together.opened
  }
  for (const cost of [1, 2, 1]) await queue.add('job', {}, { cost })
  const worker = shop.worker(queue, process, { telemetry, concurrency: 3 })
  const departures = departuresOf(worker)
  await eventsOf('completed', worker).reach(3)
  await worker.close()

  const spans = await spansNamed(`process ${queue.name}`)
  expect(spans).toHaveLength(3)
  for (const [i, { id, departureTimeUs, latenessUs }] of departures.all.entries()) {
    const span = spans.find(({ attributes }) => attributes['bullmq.job.id'] === id)
    // What held it is told where reports have come so far.
    const { 'sluice.held_by': _, ...own } = ownOf(span)
    expect(own).toEqual({
      'messaging.system': 'bullmq',
      'messaging.operation.type': 'process',
      'messaging.destination.name': queue.name,
      'messaging.message.id': id,
      'sluice.departure_time': expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/),
      'sluice.lateness_ms': latenessUs / 1000,
      'sluice.cost': [1, 2, 1][i],
      'sluice.wait_ms': expect.any(Number),
    })
    const time = own['sluice.departure_time'] as string
    expect(Date.parse(`${time.slice(0, -4)}Z`) * 1000 + Number(time.slice(-4, -1))).toBe(departureTimeUs)
  }
  // The second costs two, of a bucket that holds two and lost one: it has to wait for a unit, which takes 20 ms.
  const waits = spans.map(({ attributes }) => attributes['sluice.wait_ms'] as number)
  expect(Math.min(...waits)).toBeGreaterThanOrEqual(0)
  expect(Math.max(...waits)).toBeGreaterThan(19)
})

test('an attempt that is not the first tells no wait, nor does a delay count as one', async () => {
  const DELAY_MS = 4000
  const queue = shop.queue({ rate: '1000/s' }, { telemetry })
  const worker = shop.worker(
    queue,
    async (job) => {
      if (job.attemptsMade === 0) throw new Error('once')
    },
    { telemetry },
  )
  const completed = eventsOf('completed', worker)
  await queue.add('job', {}, { attempts: 2, delay: DELAY_MS })
  await completed.reach(1)
  await worker.close()
  const [first, second] = (await spansNamed(`process ${queue.name}`)).map(ownOf)
  expect(first?.['sluice.wait_ms']).toBeLessThan(DELAY_MS)
  expect(Object.keys(second ?? {})).toEqual(Object.keys(first ?? {}).filter((name) => name !== 'sluice.wait_ms'))
})

test.each([
  [
    'a full queue',
    { rate: '10/min', capacity: 1 },
    QueueFullError,
    { 'error.type': 'QueueFullError', 'sluice.depth': 1, 'sluice.capacity': 1 },
  ],
  [
    'a start that would be too late',
    { rate: '10/min', maxWaitMs: 1 },
    CannotStartInTimeError,
    { 'error.type': 'CannotStartInTimeError', 'sluice.depth': 1 },
  ],
] as const)('the span of an add tells of %s', async (_, shape, error, attributes) => {
  const queue = shop.queue(shape, { telemetry })
  await queue.add('job', {})
  const refused = await queue.add('job', {}).catch((thrown: unknown) => thrown)
  expect(refused).toBeInstanceOf(error)
  const [accepted, span] = await spansNamed(`add ${queue.name}.job`)
  expect(ownOf(accepted)).toEqual({})
  expect(ownOf(span)).toEqual({
    'messaging.system': 'bullmq',
    'messaging.operation.type': 'send',
    'messaging.destination.name': queue.name,
    'sluice.refused': true,
    'sluice.retry_after_ms': (refused as QueueFullError).retryAfterMs,
    'sluice.paused': false,
    ...attributes,
  })
  expect(span?.events.map(({ name }) => name)).toEqual(['exception'])
})

test('other errors of an add are no refusals', async () => {
  const queue = shop.queue({ rate: '10/min' }, { telemetry })
  await expect(queue.add('job', {}, { cost: 2 })).rejects.toThrow('cost 2 exceeds burst 1')
  const [span] = await spansNamed(`add ${queue.name}.job`)
  expect(span?.events.map(({ name }) => name)).toEqual(['exception'])
  expect(ownOf(span)).toEqual({})
})

test('a job that waited longer than reports are apart tells what held it', async () => {
  const queue = shop.queue({ rate: '10/s' }, { telemetry })
  await queue.addBulk(jobs(60))
  const worker = shop.worker(queue, async () => {}, { telemetry })
  await eventsOf('completed', worker).reach(60)
  await worker.close()
  const spans = await spansNamed(`process ${queue.name}`)
  expect(spans.at(-1)?.attributes).toMatchObject({ 'sluice.held_by': 'rate' })
})
