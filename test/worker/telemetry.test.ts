import { AsyncLocalStorage } from 'node:async_hooks'
import { type Job, type Telemetry, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

interface FakeSpan {
  readonly name: string
  readonly parent: FakeSpan | undefined
  readonly attributes: Record<string, unknown>
  readonly events: string[]
  ended: boolean
}

/** Keeps the spans; a context is the span that is on it. */
function fakeTelemetry(): { telemetry: Telemetry<FakeSpan | undefined>; spans: FakeSpan[] } {
  const spans: FakeSpan[] = []
  const storage = new AsyncLocalStorage<FakeSpan | undefined>()
  const telemetry = {
    tracer: {
      startSpan(name: string, _options: unknown, context?: FakeSpan) {
        const span: FakeSpan = { name, parent: context ?? storage.getStore(), attributes: {}, events: [], ended: false }
        spans.push(span)
        return {
          setSpanOnContext: () => span,
          setAttribute: (key: string, value: unknown) => {
            span.attributes[key] = value
          },
          setAttributes: (attributes: object) => void Object.assign(span.attributes, attributes),
          addEvent: (event: string) => void span.events.push(event),
          recordException: () => void span.events.push('exception'),
          end: () => {
            span.ended = true
          },
        }
      },
    },
    contextManager: {
      with: (context: FakeSpan | undefined, fn: () => unknown) => storage.run(context, fn),
      active: () => storage.getStore(),
      getMetadata: (context: FakeSpan | undefined) => (context ? String(spans.indexOf(context)) : ''),
      fromMetadata: (_active: FakeSpan | undefined, metadata: string) => spans[Number(metadata)],
    },
  }
  return { telemetry: telemetry as never, spans }
}

/** The spans of the life of a job, without their timing. */
async function spansOf(make: (telemetry: Telemetry) => Worker): Promise<object[]> {
  const { telemetry, spans } = fakeTelemetry()
  const worker = make(telemetry as Telemetry)
  await eventsOf<Job>('completed', worker).reach(1)
  await eventsOf<Job>('failed', worker).reach(1)
  await worker.pause()
  await worker.resume()
  await worker.close()
  expect(spans.every(({ ended }) => ended)).toBe(true)
  const told = spans.filter(({ name }) => /process|complete|fail|pause|resume|close/.test(name))
  return told.map(({ name, events, attributes, parent }) => ({
    name: name.replace(/q\d+/, 'q'),
    parent: parent?.name.replace(/q\d+/, 'q'),
    events,
    // What the shape tells beside it is held in packages/metrics/test/telemetry.test.ts.
    attributes: Object.keys(attributes)
      .filter((name) => !/^(messaging|sluice)\./.test(name))
      .sort(),
  }))
}

test('spans are those of BullMQ’s worker', async () => {
  const processor = async (job: Job) => {
    if (job.name === 'bad') throw new Error('told to')
  }
  const add = [
    { name: 'good', data: {} },
    { name: 'bad', data: {} },
  ]
  const { connection, prefix } = redis
  const [one, other] = [shop.queue({ rate: '100/s' }), shop.queue()]
  await one.addBulk(add)
  await other.addBulk(add)
  const ours = await spansOf((telemetry) => shop.worker(one, processor, { telemetry }))
  const stock = await spansOf((telemetry) =>
    shop.keep(new Worker(other.name, processor, { connection, prefix, telemetry })),
  )
  expect(ours).toEqual(stock)
  expect(ours.map((span) => (span as FakeSpan).name)).toContain('process q')
})
