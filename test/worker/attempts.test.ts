import { setImmediate as nextTurn } from 'node:timers/promises'
import { UnrecoverableError } from 'bullmq'
import { expect, test } from 'vitest'
import type { HeldJob } from '../../src/departure/held-job.ts'
import type { Feedback } from '../../src/feedback/feedback.ts'
import type { Verdict } from '../../src/feedback/loop.ts'
import { Attempts } from '../../src/worker/attempts.ts'
import { ShapedJob } from '../../src/worker/shaped-job.ts'
import { gate } from './support.ts'

/** Attempts whose calls all get one verdict. */
function withVerdict(verdict: Verdict, watchesReturns = true) {
  const seen = {
    emitted: [] as unknown[],
    untracked: [] as string[],
    begun: [] as number[],
    open: [] as number[],
    delays: [] as number[],
    given: [] as string[],
  }
  const loop = {
    watchesReturns,
    begin: (_held: HeldJob, running: number) => void seen.begun.push(running),
    give: async (_attempt: unknown, feedback: Feedback) => void seen.given.push(feedback.kind),
    threw: async () => verdict,
    returned: async (_attempt: unknown, _result: unknown, running: number) => {
      seen.open.push(running)
      return verdict
    },
  }
  const worker = { emit: (event: string, _job: unknown, what: unknown) => seen.emitted.push([event, what]) }
  const locks = { untrackJob: (id: string) => seen.untracked.push(id) }
  const attempts = new Attempts(worker as never, loop as never, locks as never)
  const job = new ShapedJob({ opts: {}, toKey: String } as never, 'job', {})
  job.moveToDelayed = async (atMs) => void seen.delays.push(atMs - Date.now())
  const { opts } = job
  const run = (call: () => Promise<unknown>) =>
    attempts.run(job, { id: 'a', token: 't' } as HeldJob, call).then(
      (result) => ({ result, error: undefined }),
      (error: Error) => ({ result: undefined, error }),
    )
  return { attempts, run, seen, opts, job }
}

const mine = () => Promise.reject(new Error('mine'))

test('a job that can never succeed fails for good, with what the processor threw and why', async () => {
  const { run, seen } = withVerdict({ kind: 'fatal', reason: '550' })
  const { error } = await run(mine)
  expect(error).toBeInstanceOf(UnrecoverableError)
  expect(error).toMatchObject({ message: 'mine (550)', cause: { message: 'mine' } })
  expect(error?.stack).toBe((error as { cause: Error }).cause.stack)
  // No error: the answer was returned, or anything was thrown.
  for (const call of [async () => 'sent', () => Promise.reject('text')]) {
    const end = await run(call)
    expect(end.error).toBeInstanceOf(UnrecoverableError)
    expect(end.error?.message).toBe('550')
  }
  const own = new UnrecoverableError('never')
  expect((await run(() => Promise.reject(own))).error).toBe(own)
  expect(seen.emitted).toEqual(Array(4).fill(['verdict', { kind: 'fatal', reason: '550' }]))
})

test('a job that was throttled for too long fails for good', async () => {
  const { run, seen } = withVerdict({ kind: 'given up', reason: 'given up after 3d' })
  expect((await run(mine)).error?.message).toBe('mine (given up after 3d)')
  expect(seen.emitted).toEqual([['verdict', { kind: 'givenUp', reason: 'given up after 3d' }]])
})

test('a job that may fail by itself fails by its own error, after its own backoff or the one that it is given', async () => {
  const jittered = { type: 'exponential', delay: 1000, jitter: 1 }
  const later = withVerdict({ kind: 'backoff', reason: 'busy', afterMs: 7 })
  expect((await later.run(mine)).error?.message).toBe('mine')
  expect(later.opts.backoff).toEqual({ type: 'fixed', delay: 7 })
  expect(later.seen.emitted).toEqual([['verdict', { kind: 'retryJob', reason: 'busy', afterMs: 7 }]])
  const soon = withVerdict({ kind: 'backoff', reason: 'busy' })
  // A failure that was returned is no success.
  expect((await soon.run(async () => '421')).error?.message).toBe('the processor returned a failure: busy')
  expect(soon.opts.backoff).toEqual(jittered)
  expect(soon.seen.emitted).toEqual([['verdict', { kind: 'retryJob', reason: 'busy' }]])
  const own = withVerdict({ kind: 'backoff', reason: 'busy' })
  own.opts.backoff = 5
  await own.run(mine)
  expect(own.opts.backoff).toBe(5)
  const unreported = withVerdict({ kind: 'unreported', reason: '429' })
  expect((await unreported.run(async () => 'x')).error?.message).toBe('the processor returned a failure: 429')
  expect([unreported.opts.backoff, unreported.seen.emitted]).toEqual([undefined, []])
})

test('a job that went back has not ended here, and its lock is no longer renewed', async () => {
  const gone = withVerdict({ kind: 'gone' })
  expect((await gone.run(mine)).error?.name).toBe('WaitingError')
  expect(gone.seen).toMatchObject({ untracked: ['a'], delays: [], emitted: [] })
  const later = withVerdict({ kind: 'later', afterMs: 60_000, reason: '429' })
  expect((await later.run(mine)).error?.name).toBe('DelayedError')
  expect(later.seen.untracked).toEqual(['a'])
  expect(later.seen.delays).toEqual([expect.closeTo(60_000, -3)])
  expect(later.seen.emitted).toEqual([['verdict', { kind: 'retryJob', reason: '429', afterMs: 60_000 }]])
})

test('a job that its processor moved itself is none of the downstream’s', async () => {
  const { run, seen } = withVerdict({ kind: 'fatal', reason: '550' })
  const moved = Object.assign(new Error(), { name: 'DelayedError' })
  expect((await run(() => Promise.reject(moved))).error).toBe(moved)
  expect(seen.emitted).toEqual([])
})

test('what a processor returns is looked at where something listens', async () => {
  expect((await withVerdict({ kind: 'fatal', reason: '550' }, false).run(async () => 'sent')).result).toBe('sent')
  expect((await withVerdict({ kind: 'own' }).run(async () => 'sent')).result).toBe('sent')
})

test('a job hears its processor while that runs, and no longer', async () => {
  const { run, seen, job } = withVerdict({ kind: 'own' })
  const pause = () => job.feedback({ kind: 'pause', forMs: 5, reason: 'busy' })
  await run(pause)
  expect(seen.given).toEqual(['pause'])
  await expect(pause()).rejects.toThrow('works while a processor')
})

test('running processors are counted, and all are awaited, however they end', async () => {
  const { attempts, run, seen } = withVerdict({ kind: 'own' })
  await attempts.idle()
  const [first, second, third] = [gate(), gate(), gate()]
  const failing = second.opened.then(mine)
  const ends = [first.opened, failing, third.opened].map((call) => run(() => call))
  expect([seen.begun, attempts.running]).toEqual([[1, 2, 3], 3])
  let idle = 0
  const count = () => {
    idle += 1
  }
  const waits = [attempts.idle().then(count)]
  first.open()
  await ends[0]
  second.open()
  await ends[1]
  waits.push(attempts.idle().then(count))
  await nextTurn()
  expect([idle, attempts.running]).toEqual([0, 1])
  third.open()
  await Promise.all([...waits, ...ends])
  // What is told of each is how many calls were still open.
  expect([attempts.running, seen.open]).toEqual([0, [2, 0]])
})
