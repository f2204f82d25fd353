import type { BackendFactory, Job, Queue, QueueEvents, QueueOptions, Worker } from 'bullmq'
import { describe, expectTypeOf, test } from 'vitest'
import {
  createShapedBackend,
  type Departure,
  type EffectiveShape,
  type Offer,
  type RateSchedule,
  type Refusal,
  type Shape,
  type ShapedFlowProducer,
  type ShapedQueue,
  type ShapedQueueEvents,
  type ShapedQueueEventsListener,
  type ShapedQueueOptions,
  type ShapedWorker,
  type ShapedWorkerOptions,
  type StateLoss,
} from '../../src/index.ts'

interface Mail {
  readonly to: string
}
type Name = 'welcome' | 'reminder'
type MailQueue = ShapedQueue<Mail, boolean, Name>
type MailWorker = ShapedWorker<Mail, boolean, Name>
type MailJob = Job<Mail, boolean, Name>

// What tsc says of this file is the test: nothing of it runs.
declare const queue: MailQueue
declare const worker: MailWorker
declare const events: ShapedQueueEvents<boolean>
declare const plainEvents: QueueEvents<boolean>
const never = () => false as boolean

describe('ShapedQueue', () => {
  test('its generics are those of Queue, in its order', () => {
    expectTypeOf<Awaited<ReturnType<MailQueue['add']>>>().toEqualTypeOf<MailJob>()
    expectTypeOf<Awaited<ReturnType<Queue<Mail, boolean, Name>['add']>>>().toEqualTypeOf<MailJob>()
    expectTypeOf<Parameters<MailQueue['add']>[0]>().toEqualTypeOf<Name>()
    expectTypeOf<Parameters<MailQueue['add']>[1]>().toEqualTypeOf<Mail>()
    expectTypeOf<Awaited<ReturnType<MailQueue['getJob']>>>().toEqualTypeOf<
      Awaited<ReturnType<Queue<Mail, boolean, Name>['getJob']>>
    >()
  })

  test('like Queue it takes a whole job type in the place of the data', () => {
    type OfJob = ShapedQueue<MailJob>
    expectTypeOf<Parameters<OfJob['add']>[1]>().toEqualTypeOf<Mail>()
    expectTypeOf<Awaited<ReturnType<OfJob['add']>>>().toEqualTypeOf<MailJob>()
  })

  test('every way in takes a cost, and none a wrong one', () => {
    if (never()) {
      void queue.add('welcome', { to: 'a' }, { cost: 2, delay: 5 })
      void queue.addBulk([{ name: 'welcome', data: { to: 'a' }, opts: { cost: 2 } }])
      void queue.offer('welcome', { to: 'a' }, { cost: 2 })
      void queue.addWhenFree('welcome', { to: 'a' }, { cost: 2, timeoutMs: 5 })
      void queue.upsertJobScheduler('welcome', { every: 5 }, { opts: { cost: 2 } })
      void queue.add('welcome', { to: 'a' }, { keys: { model: 'large', tier: 3 } })
      // @ts-expect-error a value is a string or a number
      void queue.add('welcome', { to: 'a' }, { keys: { model: true } })
      // @ts-expect-error a cost is a number
      void queue.add('welcome', { to: 'a' }, { cost: '2' })
      // @ts-expect-error no such name
      void queue.add('farewell', { to: 'a' })
      // @ts-expect-error no such data
      void queue.add('welcome', { from: 'a' })
    }
  })

  test('an offer is accepted with a place, or refused with a time to come back', () => {
    type MailOffer = Awaited<ReturnType<MailQueue['offer']>>
    expectTypeOf<MailOffer>().toEqualTypeOf<Offer<MailJob>>()
    expectTypeOf<Extract<MailOffer, { accepted: true }>['job']>().toEqualTypeOf<MailJob>()
    expectTypeOf<Extract<MailOffer, { accepted: true }>['startsAt']>().toEqualTypeOf<Date | undefined>()
    expectTypeOf<Extract<MailOffer, { accepted: false }>>().toExtend<Refusal>()
  })

  test('it listens to what Queue listens to, and to refusals', () => {
    if (never()) {
      queue.on('refused', (refusal) => expectTypeOf(refusal).toEqualTypeOf<Refusal>())
      queue.on('shape', (now, before) => {
        expectTypeOf(now).toEqualTypeOf<EffectiveShape>()
        expectTypeOf(before).toEqualTypeOf<EffectiveShape | undefined>()
      })
      queue.on('error', (error) => expectTypeOf(error).toEqualTypeOf<Error>())
      // @ts-expect-error no such event
      queue.on('overflow', () => {})
    }
  })

  test('its options are those of Queue and the shape', () => {
    expectTypeOf<ShapedQueueOptions>().toExtend<QueueOptions>()
    expectTypeOf<ShapedQueueOptions['shape']>().toEqualTypeOf<Shape | undefined>()
  })
})

describe('ShapedWorker', () => {
  test('it is a Worker, its generics in its order', () => {
    expectTypeOf<MailWorker>().toExtend<Pick<Worker<Mail, boolean, Name>, 'close' | 'pause' | 'resume' | 'cancelJob'>>()
    expectTypeOf<Awaited<ReturnType<MailWorker['getNextJob']>>>().toEqualTypeOf<
      Awaited<ReturnType<Worker<Mail, boolean, Name>['getNextJob']>>
    >()
  })

  test('the limiter of BullMQ is no option', () => {
    expectTypeOf<ShapedWorkerOptions>().not.toHaveProperty('limiter')
    const connection = {}
    const options: ShapedWorkerOptions = { connection, shape: { rate: '50/s' }, concurrency: 5, lockDuration: 1000 }
    // @ts-expect-error limiter is refused
    const limited: ShapedWorkerOptions = { connection, limiter: { max: 1, duration: 1000 } }
    expectTypeOf(options).toEqualTypeOf(limited)
  })

  test('events carry what they say', () => {
    if (never()) {
      worker.on('departed', (job, departure) => {
        expectTypeOf(job).toEqualTypeOf<MailJob>()
        expectTypeOf(departure).toEqualTypeOf<Departure>()
        expectTypeOf(departure.latenessUs).toEqualTypeOf<number>()
      })
      worker.on('late', (job, { latenessUs }) => {
        expectTypeOf(job).toEqualTypeOf<MailJob>()
        expectTypeOf(latenessUs).toEqualTypeOf<number>()
      })
      worker.on('completed', (job, result) => {
        expectTypeOf(job).toEqualTypeOf<MailJob>()
        expectTypeOf(result).toEqualTypeOf<boolean>()
      })
      worker.on('stateLoss', (loss) => expectTypeOf(loss).toEqualTypeOf<StateLoss>())
      worker.on('clockStep', ({ backUs }) => expectTypeOf(backUs).toEqualTypeOf<number>())
      worker.on('foreignWorker', ({ jobId }) => expectTypeOf(jobId).toEqualTypeOf<string>())
      // @ts-expect-error no such event
      worker.on('arrived', () => {})
    }
  })
})

describe('a shape', () => {
  test('rates are text, { limit, period } or a schedule', () => {
    expectTypeOf<Shape['rate']>().toEqualTypeOf<
      string | { readonly limit: number; readonly period: number } | RateSchedule | undefined
    >()
    // @ts-expect-error a mode that does not exist
    const wrong: Shape = { mode: 'maybe' }
    // @ts-expect-error a field that does not exist
    const misspelt: Shape = { rates: '50/s' }
    expectTypeOf(wrong).toEqualTypeOf(misspelt)
  })

  test('what can only be declared is not set at run time', () => {
    expectTypeOf<Parameters<ShapedQueue['setShape']>[0]>().not.toHaveProperty('onStateLoss')
    expectTypeOf<Parameters<ShapedQueue['setShape']>[0]>().toHaveProperty('rate')
  })
})

test('createShapedBackend is a factory for every class of BullMQ', () => {
  expectTypeOf(createShapedBackend).toExtend<BackendFactory>()
  expectTypeOf<ShapedFlowProducer>().toHaveProperty('addBulk')
})

describe('ShapedQueueEvents', () => {
  type Listener = ShapedQueueEventsListener<boolean>

  test("it listens to BullMQ's events, and to those of a shape", () => {
    if (never()) {
      events.on('refused', (args, id) => {
        expectTypeOf(args).toEqualTypeOf<{ count: string; depth: string; capacity: string }>()
        expectTypeOf(id).toEqualTypeOf<string>()
      })
      events.once('dropped', ({ overflow }) => expectTypeOf(overflow).toEqualTypeOf<'drop-oldest' | 'drop-lowest'>())
      events.off('expired', ({ deadline }) => expectTypeOf(deadline).toEqualTypeOf<string>())
      events.on('feedback', ({ change }) => expectTypeOf(change).toEqualTypeOf<string>())
      events.on('completed', ({ returnvalue }) => expectTypeOf(returnvalue).toEqualTypeOf<boolean>())
      // @ts-expect-error no such event
      events.on('overflow', () => {})
    }
  })

  test('it is a QueueEvents, which can be given the same listeners', () => {
    expectTypeOf<ShapedQueueEvents<boolean>>().toExtend<QueueEvents<boolean>>()
    if (never()) {
      plainEvents.on<Listener, 'dropped'>('dropped', ({ jobId }) => expectTypeOf(jobId).toEqualTypeOf<string>())
      // @ts-expect-error BullMQ does not know it
      plainEvents.on('dropped', () => {})
    }
  })
})
