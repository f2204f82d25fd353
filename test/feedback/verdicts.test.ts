import { expect, test, vi } from 'vitest'
import type { HeldJob } from '../../src/departure/held-job.ts'
import { PauseQueueError } from '../../src/errors.ts'
import type { Feedback, Pause } from '../../src/feedback/feedback.ts'
import { FeedbackLoop } from '../../src/feedback/loop.ts'
import { checkFeedbackOptions, type FeedbackOptions } from '../../src/feedback/options.ts'
import type { FeedbackSource, Found } from '../../src/feedback/source.ts'
import { StoredShape } from '../../src/shape/stored.ts'
import { said } from './support/told.ts'

// What one worker makes of an answer, and what it tells Redis. The scripts are not run: their reply is given.

/** What a request says, as far as these tests look. */
interface Request {
  readonly found: readonly { readonly feedback: Feedback }[]
  readonly oks: number
  readonly ok_at?: number
  readonly group?: string
  readonly calls?: { readonly oks: number; readonly ok_at?: number }
  readonly job?: {
    readonly id: string
    readonly head: boolean
    readonly retried: boolean
    readonly reason: string
    readonly target?: string
    readonly same?: number
    readonly others?: number
  }
}

const PROBES = { born: '1', rev: '1', mode: 'enforce', probe: 'armed 1', feedback: '{}' }
/** Of `apply-feedback`: how often the job was throttled, and its delay or what happened instead. */
const [BACK, WORN, GIVEN_UP] = [-1, -2, -3]

const pause = (more: Partial<Pause> = {}): Pause => ({ kind: 'pause', forMs: undefined, hard: false, ...said, ...more })
const retry = (afterMs?: number): Feedback => {
  const busy = { kind: 'retryJob', ...said, reason: 'busy' } as const
  return afterMs === undefined ? busy : { ...busy, afterMs }
}
const fatal: Feedback = { kind: 'fatal', ...said, reason: '550' }

/** `feedback: undefined`: without a profile. */
type Options = { readonly [F in keyof FeedbackOptions]?: FeedbackOptions[F] | undefined }

function worker(options: Options = {}, shape: Readonly<Record<string, string>> = PROBES) {
  const requests: Request[] = []
  const emitted: [event: string, value: unknown][] = []
  const redis = { reply: [1, 0] as readonly number[], fails: undefined as Error | undefined, changes: '{}' }
  const store = {
    memory: { stored: new StoredShape(shape) },
    change: async (_script: string, [request]: [string]) => {
      if (redis.fails) throw redis.fails
      requests.push(JSON.parse(request))
      return [1, [], redis.changes, ...redis.reply]
    },
  }
  const backend = { store, untilStored: (_ids: unknown, send: () => Promise<unknown>) => send() }
  const emit = (event: string, value: unknown) => emitted.push([event, value])
  const source = { name: 'test', listen: (outcome: object) => (Object.values(outcome)[0] as Answer).found ?? [] }
  const known = checkFeedbackOptions({ feedback: source, ...options } as FeedbackOptions)
  const loop = new FeedbackLoop({ id: 'w', concurrency: 8, emit, backend } as never, known)
  const begin = (slotMs: number, job: Parameters<FeedbackLoop['begin']>[2] = {}) =>
    loop.begin(
      { id: `job ${slotMs}`, token: 't', slotUs: slotMs * 1000, score: '', fields: [] } as Partial<HeldJob> as HeldJob,
      1,
      job,
    )
  return { loop, requests, emitted, redis, begin, last: () => requests.at(-1) as Request }
}

type Answer = { readonly found?: readonly Found[] }
const answer = (...feedback: readonly Feedback[]): Answer => ({ found: feedback.map((one) => ({ feedback: one })) })
const kinds = ({ found }: Request) => found.map(({ feedback }) => feedback.kind)

test.each<[string, readonly Feedback[], readonly number[], object]>([
  ['it is back at the head', [pause()], [1, BACK], { kind: 'gone' }],
  ['it is another worker’s by now', [pause()], [0, 0], { kind: 'gone' }],
  ['it is another worker’s by now, with a time of its own', [retry(40)], [0, 0], { kind: 'gone' }],
  ['others are probed meanwhile', [pause()], [1, 700], { kind: 'later', afterMs: 700, reason: '429' }],
  ['Redis knows no time for it', [pause()], [1, 0], { kind: 'gone' }],
  ['it alone is refused: its attempts decide', [pause()], [3, WORN], { kind: 'backoff', reason: '429' }],
  ['it alone is refused, for a time', [pause({ forMs: 5 })], [3, WORN], { kind: 'backoff', reason: '429', afterMs: 5 }],
  [
    'it alone is refused, for several times',
    [pause({ forMs: 5 }), pause({ forMs: 9 }), pause({ forMs: 7 })],
    [3, WORN],
    { kind: 'backoff', reason: '429', afterMs: 9 },
  ],
  [
    'it was refused for too long',
    [pause()],
    [1, GIVEN_UP],
    { kind: 'given up', reason: 'given up after 3d: throttled 1 time, most recently for 429' },
  ],
  [
    'and often',
    [pause()],
    [4, GIVEN_UP],
    { kind: 'given up', reason: 'given up after 3d: throttled 4 times, most recently for 429' },
  ],
  ['it has a time of its own', [retry(40)], [1, 0], { kind: 'later', afterMs: 40, reason: 'busy' }],
  ['it has a time of its own, too often', [retry(40)], [1, WORN], { kind: 'backoff', reason: 'busy', afterMs: 40 }],
])('a refused job, where %s', async (_where, found, reply, verdict) => {
  const { loop, redis, begin, last } = worker()
  redis.reply = reply
  expect(await loop.threw(begin(5), answer(...found))).toEqual(verdict)
  expect(last().job).toMatchObject({ id: 'job 5', retried: found[0]?.kind === 'retryJob' })
  // The same answer may be returned.
  expect(await loop.returned(begin(5), answer(...found), 0)).toEqual(verdict)
})

test.each<[string, readonly Feedback[], object, readonly string[]]>([
  ['that can never succeed', [fatal, pause()], { kind: 'fatal', reason: '550' }, ['pause']],
  ['whose backoff decides', [retry()], { kind: 'backoff', reason: 'busy' }, []],
  ['of which nothing is known', [], { kind: 'own' }, []],
])('a job %s is not throttled, and others hear only of what concerns them', async (_job, found, verdict, told) => {
  const { loop, requests, begin } = worker()
  expect(await loop.threw(begin(5), answer(...found))).toEqual(verdict)
  expect(requests.flatMap(kinds)).toEqual(told)
  expect(requests.map(({ job }) => job)).toEqual(told.map(() => undefined))
})

test('an error that rules out another run does so whatever else is said, which the queue still hears', async () => {
  const { loop, requests, begin } = worker()
  const error = Object.assign(new Error('never'), { name: 'UnrecoverableError', ...answer(pause()) })
  expect(await loop.threw(begin(5), error)).toEqual({ kind: 'own' })
  expect(requests).toMatchObject([{ found: [{ feedback: { kind: 'pause' } }] }])
  expect(requests[0]?.job).toBeUndefined()
})

test('a call that may have had its effect comes again only if its job may be tried again', async () => {
  const { loop, requests, redis, begin } = worker()
  redis.reply = [1, BACK]
  const broken = answer(pause({ mayBeDone: true }))
  expect(await loop.threw(begin(5), broken)).toEqual({ kind: 'own' })
  expect(await loop.threw(begin(5, { attempts: 1 }), broken)).toEqual({ kind: 'own' })
  expect(requests).toEqual([])
  expect(await loop.threw(begin(5, { attempts: 2 }), broken)).toEqual({ kind: 'gone' })
})

test('a rule that counts throttles the queue in the end, but not the job', async () => {
  const { loop, last, begin } = worker()
  const rule = { id: 'r', trigger: { count: 3, periodMs: 1000 } }
  expect(await loop.threw(begin(5), { found: [{ feedback: pause(), rule }] })).toEqual({ kind: 'own' })
  expect(last()).toMatchObject({ found: [{ feedback: { kind: 'pause' }, rule: 'r', trigger: rule.trigger }] })
  expect(last().job).toBeUndefined()
})

test('a refusal names its target by a hash, and when calls to it and to others went well last', async () => {
  const { loop, last, begin } = worker()
  const toward = async (target: string, slotMs: number) => {
    const ok: Feedback = { kind: 'ok', ...said }
    expect(await loop.returned(begin(slotMs), { found: [{ feedback: ok, target }] }, 0)).toEqual({ kind: 'own' })
  }
  const refused = async (found: Omit<Found, 'feedback'>) => {
    await loop.threw(begin(99), { found: [{ feedback: pause(), ...found }] })
    return last().job
  }
  expect(await refused({})).not.toHaveProperty('target')
  expect(await refused({ target: 'https://a/secret' })).not.toHaveProperty('same')
  await toward('https://a/secret', 30)
  await toward('https://b', 50)
  await toward('https://c', 40)
  await toward('https://a/secret', 20)
  const job = await refused({ target: 'https://a/secret' })
  expect(job).toMatchObject({ same: 30, others: 50, target: expect.stringMatching(/^[\w-]{16}$/) })
})

test('the next refusal says how many calls went well since the last report; one about a group, how many of it', async () => {
  const { loop, last, begin } = worker()
  const quiet = worker({}, { born: '1', rev: '1', mode: 'enforce', feedback: '{}' })
  for (const slotMs of [10, 30, 20]) {
    const attempt = quiet.begin(slotMs, { group: { id: 'g' } })
    expect(await quiet.loop.returned(attempt, {}, 0)).toEqual({ kind: 'own' })
  }
  await quiet.loop.returned(quiet.begin(60, { group: { id: 'other' } }), {}, 0)
  await quiet.loop.returned(quiet.begin(70), {}, 0)
  expect(quiet.requests).toEqual([])
  const ofGroup = { group: { id: 'g' } }
  await quiet.loop.threw(quiet.begin(99, ofGroup), answer(pause()))
  expect(quiet.last()).toMatchObject({ oks: 5, ok_at: 70, group: 'g' })
  expect(quiet.last().calls).toBeUndefined()
  await quiet.loop.threw(quiet.begin(99, ofGroup), answer(pause({ scope: 'group' })))
  expect(quiet.last()).toMatchObject({ oks: 0, ok_at: 70, group: 'g', calls: { oks: 3, ok_at: 30 } })
  // While one job probes, each call that goes well is told at once.
  await loop.returned(begin(40), {}, 0)
  expect(last()).toMatchObject({ found: [{ feedback: { kind: 'ok', scope: 'queue' } }], oks: 1, ok_at: 40 })
  expect(last().group).toBeUndefined()
})

test.each<[string, Feedback]>([
  ['a slower rate', { kind: 'slow', factor: 0.5, ...said }],
  ['fewer at once', { kind: 'concurrency', limit: 3, ...said }],
])('a call that went well but asks for %s is no success to count', async (_what, feedback) => {
  const { loop, requests, redis, emitted, begin, last } = worker()
  expect(await loop.returned(begin(5), answer(feedback), 0)).toEqual({ kind: 'own' })
  expect(requests).toMatchObject([{ found: [{ feedback }], oks: 0 }])
  redis.fails = new Error('NOPERM')
  expect(await loop.returned(begin(5), answer(feedback), 0)).toEqual({ kind: 'own' })
  expect(emitted).toEqual([['error', redis.fails]])
  redis.fails = undefined
  await loop.threw(begin(5), answer(pause()))
  expect(last()).toMatchObject({ oks: 0 })
})

test('a quota of a group is told together with the success of the queue, one of the queue by itself', async () => {
  const { loop, last, begin } = worker()
  const used: Feedback = { kind: 'ok', remaining: 0, resetMs: 1000, ...said }
  await loop.returned(begin(5), answer({ ...used, scope: 'group' }), 0)
  expect(last().found.map(({ feedback }) => feedback.scope)).toEqual(['group', 'queue'])
  await loop.returned(begin(5), answer(used), 0)
  expect(last().found).toMatchObject([{ feedback: { remaining: 0, scope: 'queue' } }])
})

test('what the processor said itself is applied at once, and is not told again with its refusal', async () => {
  const { loop, requests, redis, begin, last } = worker()
  const attempt = begin(5)
  await loop.give(attempt, pause({ forMs: 9 }))
  expect(requests.map(kinds)).toEqual([['pause']])
  expect(last().job).toBeUndefined()
  redis.reply = [1, BACK]
  expect(await loop.threw(attempt, answer(pause({ scope: 'group' })))).toEqual({ kind: 'gone' })
  expect(last().found).toMatchObject([{ feedback: { scope: 'group' } }])
  for (const ofJob of [retry(40), fatal]) await loop.give(attempt, ofJob)
  expect(requests).toHaveLength(2)
})

test('a processor that paused the queue and returned has not gone well', async () => {
  const { loop, requests, begin } = worker()
  const attempt = begin(5)
  await loop.give(attempt, pause())
  await loop.returned(attempt, {}, 0)
  expect(requests.map(kinds)).toEqual([['pause']])
  await loop.returned(begin(6), {}, 0)
  expect(requests.map(kinds)).toEqual([['pause'], ['ok']])
})

test('a refusal that Redis may not hear of is said to the worker, and its job fails as without feedback', async () => {
  const { loop, redis, emitted, begin } = worker()
  redis.fails = new Error('NOPERM')
  expect(await loop.threw(begin(5), answer(pause()))).toEqual({ kind: 'unreported', reason: '429' })
  expect(await loop.threw(begin(5), answer(retry(40)))).toEqual({ kind: 'unreported', reason: 'busy' })
  expect(await loop.threw(begin(5), answer(fatal, pause()))).toEqual({ kind: 'fatal', reason: '550' })
  expect(emitted).toEqual(Array(3).fill(['error', redis.fails]))
})

test('each change of the queue is an event of the worker that heard of it', async () => {
  const { loop, redis, emitted, begin } = worker()
  redis.changes = JSON.stringify([
    { kind: 'pause', at: 5 },
    { kind: 'slow', at: 5, rate: 70, from: 100 },
  ])
  await loop.threw(begin(5), answer(pause()))
  const at = new Date(5)
  const changes = [
    { kind: 'pause', at },
    { kind: 'slow', at, rate: 70, from: 100 },
  ]
  expect(emitted).toEqual(changes.map((change) => ['feedback', change]))
})

test('a profile that throws is an error of the worker; what the processor threw decides, whatever that is', async () => {
  const error = new Error('broken')
  const listen = () => {
    throw error
  }
  const { loop, requests, emitted, begin } = worker({ feedback: { name: 'broken', listen } })
  const thrown = [new Error('mine'), 'text', undefined, { name: 'PauseQueueError' }]
  for (const one of thrown) expect(await loop.threw(begin(5), one)).toEqual({ kind: 'own' })
  expect(emitted).toEqual(thrown.map(() => ['error', error]))
  expect(requests).toEqual([])
})

test('a quota that the rate would use up is told by workers that adapt alone', async () => {
  const paced = { born: '1', rev: '1', mode: 'enforce', interval: '10000', feedback: '{}' }
  const quota = answer({ kind: 'ok', remaining: 99, resetMs: 1000, ...said })
  const told = async (adapt: boolean) => {
    const { loop, requests, begin } = worker({ adapt }, paced)
    await loop.returned(begin(5), quota, 0)
    return requests.length
  }
  expect([await told(true), await told(false)]).toEqual([1, 0])
})

test('with feedbackScope: group an answer is about the group of its job; one about a limit stays so', async () => {
  const { loop, begin, last } = worker({ feedbackScope: 'group' })
  await loop.threw(begin(5, { group: { id: 'g' } }), answer(pause(), pause({ scope: { limit: 'day' } })))
  expect(last().found.map(({ feedback }) => feedback.scope)).toEqual(['group', { limit: 'day' }])
})

test('a PauseQueueError pauses the queue whatever the profile makes of it, and goes to a worker of any copy', async () => {
  const { loop, redis, begin, last } = worker({ feedback: { name: 'deaf', listen: () => [] } })
  redis.reply = [1, BACK]
  const error = new PauseQueueError({ retryAfterMs: 500, hard: true, reason: 'maintenance' })
  const other = Object.assign(new Error(error.message), { ...error, name: 'PauseQueueError' })
  for (const thrown of [error, other]) {
    expect(await loop.threw(begin(5), thrown)).toEqual({ kind: 'gone' })
    const found = [{ feedback: { kind: 'pause', forMs: 500, hard: true, scope: 'queue', source: 'user' } }]
    expect(last()).toMatchObject({ found, job: { head: true } })
  }
})

test('what latency allows bounds a worker only where it adapts; a call that went well is a sample, a refusal a drop', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    const samples: unknown[] = []
    const limit = { limit: 3, sample: (...of: number[]) => samples.push(of), dropped: () => samples.push('dropped') }
    vi.advanceTimersByTime(1000)
    const took: number[] = []
    const listen: FeedbackSource['listen'] = (_, { latencyMs }) => {
      took.push(latencyMs)
      return []
    }
    const source = { name: 'slow', listen, concurrencyLimit: () => limit }
    expect(worker({ feedback: source }).loop.concurrency).toBe(Number.POSITIVE_INFINITY)
    const { loop, begin } = worker({ feedback: source, adapt: true })
    expect(loop.concurrency).toBe(3)
    const attempt = begin(5)
    vi.advanceTimersByTime(250)
    await loop.returned(attempt, {}, 0)
    await loop.threw(begin(5), new PauseQueueError())
    expect(samples).toEqual([[250, 1], 'dropped'])
    expect(took).toEqual([250])
  } finally {
    vi.useRealTimers()
  }
})

test('returns are watched where a profile reads them, or something said before has to end', () => {
  const plain = { born: '1', rev: '1', mode: 'enforce' }
  const watches = (shape: Readonly<Record<string, string>>, options: Options) =>
    worker(options, shape).loop.watchesReturns
  expect(watches(plain, {})).toBe(true)
  expect(watches(plain, { feedback: undefined })).toBe(false)
  expect(watches(PROBES, { feedback: undefined })).toBe(true)
})
