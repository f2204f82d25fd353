import { AsyncLocalStorage } from 'node:async_hooks'
import { DelayedError, type Job, UnrecoverableError, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, jobs, Workshop } from '../worker/support.ts'
import { batchOf, named, recording } from './support.ts'

const shop = new Workshop(useRedis(import.meta.url))

test('each job of a batch has its own end', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(4))
  const processor = async (job: Job) => {
    const batch = batchOf(job)
    named(batch, 'job1').setAsFailed(new Error('told to'))
    named(batch, 'job2').setAsCompleted('its own')
    named(batch, 'job3').setAsFailed(new Error('at first'))
    named(batch, 'job3').setAsCompleted('in the end')
    return 'for all others'
  }
  const worker = shop.worker(queue, processor, { batch: { size: 4 } })
  const failed = eventsOf<Job>('failed', worker)
  const completed = eventsOf<Job>('completed', worker)
  await Promise.all([completed.reach(3), failed.reach(1)])
  const results = completed.all.map(({ name, returnvalue }) => [name, returnvalue])
  expect(Object.fromEntries(results)).toEqual({ job0: 'for all others', job2: 'its own', job3: 'in the end' })
  expect(failed.all.map(({ name, failedReason }) => [name, failedReason])).toEqual([['job1', 'told to']])
  expect(await queue.getJobCounts('completed', 'failed', 'active')).toEqual({ completed: 3, failed: 1, active: 0 })
})

test('where the processor throws, the jobs fail of which it has said nothing', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(3))
  const processor = async (job: Job) => {
    const batch = batchOf(job)
    named(batch, 'job0').setAsCompleted(undefined)
    named(batch, 'job1').setAsFailed(new Error('its own'))
    throw new Error('for all others')
  }
  const worker = shop.worker(queue, processor, { batch: { size: 3 } })
  const failed = eventsOf<Job>('failed', worker)
  const completed = eventsOf<Job>('completed', worker)
  await Promise.all([failed.reach(2), completed.reach(1)])
  expect(completed.all.map(({ name }) => name)).toEqual(['job0'])
  expect(failed.all.map(({ name, failedReason }) => `${name}: ${failedReason}`).sort()).toEqual([
    'job1: its own',
    'job2: for all others',
  ])
})

test('a processor that throws before it returns a promise fails the batch, and the next one runs', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(3))
  let calls = 0
  const processor = (() => {
    calls += 1
    if (calls === 1) throw new Error('at once')
  }) as never
  const worker = shop.worker(queue, processor, { batch: { size: 2 } })
  const failed = eventsOf<Job>('failed', worker)
  const completed = eventsOf<Job>('completed', worker)
  await Promise.all([failed.reach(2), completed.reach(1)])
  expect(failed.all.map(({ failedReason }) => failedReason)).toEqual(['at once', 'at once'])
})

test('each job is retried by its own attempts and backoff', async () => {
  const queue = shop.queue({})
  await queue.addBulk([
    { name: 'once', data: {}, opts: {} },
    { name: 'twice', data: {}, opts: { attempts: 2 } },
    { name: 'later', data: {}, opts: { attempts: 2, backoff: { type: 'fixed', delay: 3_600_000 } } },
    { name: 'final', data: {}, opts: { attempts: 9 } },
  ])
  const { batches, processor } = recording((batch) => {
    named(batch, 'final')?.setAsFailed(new UnrecoverableError('final'))
    throw new Error('told to')
  })
  const worker = shop.worker(queue, processor, { batch: { size: 4 } })
  const failed = eventsOf<Job>('failed', worker)
  await failed.reach(5)
  expect(batches.all).toEqual([['once', 'twice', 'later', 'final'], ['twice']])
  expect(failed.all.map(({ name, attemptsMade }) => `${name} ${attemptsMade}`).sort()).toEqual(
    ['once 1', 'twice 1', 'twice 2', 'later 1', 'final 1'].sort(),
  )
  expect((await queue.getDelayed()).map(({ name }) => name)).toEqual(['later'])
  expect((await queue.getFailed()).map(({ name }) => name).sort()).toEqual(['final', 'once', 'twice'])
})

test('one job of a batch is delayed, and the others complete', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(3))
  const processor = async (job: Job) => {
    const one = named(batchOf(job), 'job1')
    await one.moveToDelayed(Date.now() + 3_600_000, one.token)
    one.setAsFailed(new DelayedError())
  }
  const worker = shop.worker(queue, processor, { batch: { size: 3 } })
  const completed = eventsOf<Job>('completed', worker)
  const failed = eventsOf<Job>('failed', worker)
  await completed.reach(2)
  expect(completed.all.map(({ name }) => name).sort()).toEqual(['job0', 'job2'])
  expect((await queue.getDelayed()).map(({ name, attemptsMade }) => [name, attemptsMade])).toEqual([['job1', 0]])
  await worker.close()
  expect(failed.all).toEqual([])
})

test.each([
  ['a whole batch', ['job0', 'job1', 'job2']],
  ['one job of it', ['job1']],
])('RateLimitError puts %s back without using up an attempt, and holds the queue', async (_, limited) => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(3))
  let calls = 0
  const startedMs: number[] = []
  const processor = async (job: Job) => {
    const batch = batchOf(job)
    calls += 1
    startedMs.push(performance.now())
    if (calls > 1) return
    await queue.rateLimit(300)
    if (limited.length === batch.length) throw Worker.RateLimitError()
    named(batch, 'job1').setAsFailed(Worker.RateLimitError())
  }
  const worker = shop.worker(queue, processor, { batch: { size: 3 } })
  const completed = eventsOf<Job>('completed', worker)
  const failed = eventsOf<Job>('failed', worker)
  const departed = departuresOf(worker)
  await completed.reach(3)
  expect(failed.all).toEqual([])
  const again = departed.all.slice(3).map(({ name }) => name)
  expect([...new Set(again)].sort()).toEqual(limited)
  expect((startedMs[1] as number) - (startedMs[0] as number)).toBeGreaterThan(299)
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual([1, 1, 1])
})

test('each job has its events, and its departure', async () => {
  const queue = shop.queue({})
  const events = shop.queueEvents(queue)
  const heard = eventsOf<{ jobId: string }>('completed', events)
  await queue.addBulk(jobs(3))
  const worker = shop.worker(queue, recording().processor, { batch: { size: 3 } })
  const departed = departuresOf(worker)
  const active = eventsOf<Job>('active', worker)
  const completed = eventsOf<Job>('completed', worker)
  await Promise.all([heard.reach(3), completed.reach(3)])
  const names = ['job0', 'job1', 'job2']
  for (const { all } of [departed, active, completed]) expect(all.map(({ name }) => name).sort()).toEqual(names)
})

test('with telemetry each job has its span, and the processor runs in that of the first', async () => {
  const storage = new AsyncLocalStorage<string>()
  const spans: string[] = []
  let jobsSeen = 0
  const span = (name: string) => ({
    ...{ setSpanOnContext: () => name, setAttribute: () => {}, addEvent: () => {}, recordException: () => {} },
    setAttributes: () => {},
    end: () => void spans.push(name),
  })
  const telemetry = {
    tracer: {
      startSpan: (name: string) => {
        if (!name.startsWith('process')) return span(name)
        jobsSeen += 1
        return span(`process ${jobsSeen}`)
      },
    },
    contextManager: {
      with: (context: string, fn: () => unknown) => storage.run(context, fn),
      active: () => storage.getStore(),
      getMetadata: () => '',
      fromMetadata: (active: unknown) => active,
    },
  }
  const queue = shop.queue({})
  await queue.addBulk(jobs(3))
  const within: unknown[] = []
  const { batches, processor } = recording(() => within.push(storage.getStore()))
  const worker = shop.worker(queue, processor, { batch: { size: 3 }, telemetry: telemetry as never })
  await eventsOf('completed', worker).reach(3)
  await worker.close()
  expect(batches.all.map(({ length }) => length)).toEqual([3])
  expect(within).toEqual(['process 1'])
  expect(spans.filter((name) => name.startsWith('process')).sort()).toEqual(['process 1', 'process 2', 'process 3'])
})

test('the signal of a batch is aborted once all of its jobs are cancelled', async () => {
  const queue = shop.queue({})
  const [one, other] = await queue.addBulk(jobs(2))
  const reached = gate<AbortSignal>()
  const processor = (_job: Job, _token?: string, signal?: AbortSignal) => {
    reached.open(signal as AbortSignal)
    return new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(new Error('cancelled'))))
  }
  const worker = shop.worker(queue, processor, { batch: { size: 2 } })
  const failed = eventsOf<Job>('failed', worker)
  const signal = await reached.opened
  worker.cancelJob(one?.id as string)
  expect(signal.aborted).toBe(false)
  worker.cancelJob(other?.id as string)
  expect(signal.aborted).toBe(true)
  await failed.reach(2)
})

test('without the option, a job is its own batch, and its outcome is that of the processor', async () => {
  const queue = shop.queue({})
  await queue.add('alone', {})
  const errors: unknown[] = []
  const processor = async (job: Job) => {
    const [one] = batchOf(job)
    expect(one).toBe(job)
    for (const end of [() => one?.setAsFailed(new Error('told to')), () => one?.setAsCompleted(1)]) {
      try {
        end()
      } catch (error) {
        errors.push((error as Error).message)
      }
    }
  }
  const worker = shop.worker(queue, processor)
  await eventsOf('completed', worker).reach(1)
  const text = 'works while a processor of a ShapedWorker with the option batch runs the job'
  expect(errors).toEqual([`job.setAsFailed ${text}`, `job.setAsCompleted ${text}`])
})

test('setAsFailed takes an error, and nothing is said of a job whose batch has ended', async () => {
  const queue = shop.queue({})
  await queue.add('one', {})
  const { processor } = recording(([job]) => {
    expect(() => job?.setAsFailed('text' as never)).toThrow('setAsFailed: error must be an Error; got "text"')
  })
  const worker = shop.worker(queue, processor, { batch: { size: 2 } })
  const [job] = await eventsOf<Job>('completed', worker).reach(1)
  expect(() => (job as never as { setAsFailed(error: Error): void }).setAsFailed(new Error('late'))).toThrow(
    'with the option batch',
  )
})
