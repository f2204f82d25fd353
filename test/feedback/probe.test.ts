import { beforeEach, describe, expect, test } from 'vitest'
import { giveBackArguments } from '../../src/departure/give-back.ts'
import { type HeldJob, heldJobs } from '../../src/departure/held-job.ts'
import { applyFeedback } from '../../src/feedback/request.ts'
import type { FeedbackChange } from '../../src/index.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, jobs, Record, Workshop } from '../worker/support.ts'
import { concurrency, HeldLoop, ok, pause } from './support/held-loop.ts'
import { ears, said, Told } from './support/told.ts'

// A probe that goes back before its outcome is known is followed by another, at once.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const loop = new HeldLoop(redis, 'probe')
const client = redis.client()
const HORIZON_US = 50_000

/** The scripts are the real ones, their clock is held. */
describe('a probe', () => {
  beforeEach(() => loop.queue.reset({ rate: '200/s' }))

  /** A hard pause that is over, and jobs that wait behind it. */
  async function afterPause(): Promise<void> {
    await loop.tell(pause(1000, true), { adapt: false, sentUs: loop.nowUs - 1 })
    await loop.pass(1000)
  }

  /** Asks for jobs as a worker does: each call has its own lock token. */
  async function held(workerId = 'held') {
    const reply = await loop.queue.departAs(workerId, { jobs: 5, horizonUs: HORIZON_US })
    return { reply, granted: heldJobs(reply) }
  }

  const giveBack = (granted: readonly HeldJob[], leavingWorkerId = '') =>
    loop.queue.backend.store.run('give-back', giveBackArguments(granted, leavingWorkerId))

  async function expectOpen(): Promise<void> {
    const { changes } = await loop.tell(ok())
    expect(changes).toMatchObject([{ kind: 'resumed' }])
    expect((await held()).granted).toHaveLength(5)
  }

  test.each([
    ['late', '', {}],
    ['of a worker that closes', 'held', {}],
    ['of a priority', '', { priority: 3 }],
  ])('that goes back, %s, is followed by another', async (_, leavingWorkerId, opts) => {
    for (let i = 0; i < 6; i++) await loop.queue.add(opts)
    await afterPause()
    const { granted } = await held()
    expect(granted).toHaveLength(1)
    expect(await giveBack(granted, leavingWorkerId)).toMatchObject([1, expect.any(Number)])
    await loop.pass(10)
    const again = await held()
    expect(again.granted.map(({ id }) => id)).toEqual([granted[0]!.id])
    expect((await held('other')).granted).toEqual([])
    await expectOpen()
  })

  test.each([['a b'], ['1 a'], ['out 1 2 a'], [' '], ['^%d+ (.*)$'], ['.*'], ['%'], ['a\nb'], ['ä🚦']])(
    'of the job %j too',
    async (jobId) => {
      await loop.queue.add({ jobId })
      await loop.queue.add({ jobId: 'other' })
      await afterPause()
      const { granted } = await held()
      expect(granted.map(({ id }) => id)).toEqual([jobId])
      await giveBack(granted)
      await loop.pass(10)
      expect((await held()).granted.map(({ id }) => id)).toEqual([jobId])
      // Its outcome is what opens, also where its name looks like a state.
      expect((await loop.tell(ok())).changes).toMatchObject([{ kind: 'resumed' }])
      expect((await held()).granted.map(({ id }) => id)).toEqual(['other'])
    },
  )

  test('of somebody else goes on when another job goes back', async () => {
    await loop.fill(3)
    const before = await held()
    await loop.fill(6)
    await afterPause()
    expect(await giveBack(before.granted.slice(1))).toMatchObject([2, 0])
    const { granted } = await held()
    expect(granted.map(({ id }) => id)).toEqual([before.granted[1]!.id])
    // Held since before the pause, and heard of late.
    expect(await giveBack(before.granted)).toMatchObject([1, 0])
    await loop.pass(10)
    expect((await held()).granted).toEqual([])
    await expectOpen()
  })

  test('whose answer is no news goes back all the same, and the first of those who sleep is called', async () => {
    await loop.fill(6)
    await loop.tell(concurrency(5, 60_000), { adapt: false })
    await afterPause()
    const { granted } = await held('first')
    expect((await held('second')).reply.wakeUs! - loop.nowUs).toBeGreaterThan(9_000_000)
    const [hears, heard] = [redis.client(), new Record<string>()]
    hears.on('message', (_, message: string) => heard.add(message))
    await hears.subscribe(wakeChannel(loop.queue.base))
    const [{ id, token, score }] = granted as [HeldJob]
    const job = { id, token, score, head: true, give_up_ms: 259_200_000 }
    const request = JSON.parse(loop.request(concurrency(5, 60_000), { adapt: false })) as object
    const answer = await applyFeedback(loop.queue.backend.store, JSON.stringify({ ...request, job }))
    expect(answer).toMatchObject({ changes: [], back: true })
    await heard.reach(1)
    expect(heard.all).toEqual(['first'])
    expect((await held('second')).granted.map((one) => one.id)).toEqual([id])
  })

  test.each([
    [
      'fails and is tried again',
      async (jobId: string, token: string) => {
        const job = await loop.queue.queue.getJob(jobId)
        job!.opts.attempts = 2
        await job!.moveToFailed(new Error('own'), token)
      },
    ],
    [
      'stalls with its worker',
      async (jobId: string) => {
        const { base } = loop.queue
        const backend = shop.worker({ name: 'probe' }, null).getBackend()
        await backend.moveStalledJobsToWait()
        await client.del(`${base}${jobId}:lock`, `${base}stalled-check`)
        await backend.moveStalledJobsToWait()
      },
    ],
  ])('that %s is waited for until its time', async (_, end) => {
    await loop.fill(6)
    await afterPause()
    const { granted } = await held()
    const [{ id, token }] = granted as [HeldJob]
    await end(id, token)
    expect(await client.lpos(`${loop.queue.base}wait`, id)).not.toBeNull()
    await loop.pass(9949)
    expect((await held()).granted).toEqual([])
    await loop.pass(51)
    expect((await held()).granted).toHaveLength(5)
  })
})

describe('a probe for evidence', () => {
  beforeEach(() => loop.queue.reset({ rate: '200/s' }))
  const wait = `${loop.queue.base}wait`

  /** Two jobs are refused, and the pause that comes of it is over. */
  async function suspected(): Promise<readonly string[]> {
    const refused = [await loop.next()]
    await loop.pass(10)
    refused.push(await loop.next())
    for (const job of refused) {
      await loop.pass(10)
      await loop.refuse(job, [pause(undefined, true)])
    }
    await loop.pass(loop.pausedMs)
    return refused.map(({ id }) => id)
  }

  async function probeId(): Promise<string> {
    return (await loop.next()).id
  }

  test('is any job that was not refused, and takes nobody’s place', async () => {
    const seen = new Set<string>()
    for (let i = 0; i < 12; i++) {
      await loop.queue.reset({ rate: '200/s' })
      // So that the clock, by which it is chosen, does not stand where it stood.
      await loop.pass(i * 7.013)
      await loop.fill(10)
      const order = (await client.lrange(wait, 0, -1)).reverse()
      const refused = await suspected()
      const probe = await probeId()
      expect(refused).not.toContain(probe)
      seen.add(String(order.indexOf(probe)))
      // The second of the refused ones is at the head, or behind it.
      const left = (await client.lrange(wait, 0, -1)).reverse().filter((id) => !refused.includes(id))
      expect(left).toEqual(order.filter((id) => id !== probe && !refused.includes(id)))
    }
    expect(seen.size).toBeGreaterThan(4)
  })

  test('is one of a priority too', async () => {
    await loop.fill(2)
    for (let priority = 1; priority <= 9; priority++) await loop.queue.add({ priority })
    const refused = await suspected()
    // Nothing is left but those of a priority.
    await client.del(wait)
    const prioritized = `${loop.queue.base}prioritized`
    const before = await client.zrange(prioritized, 0, '-1')
    const job = await loop.next()
    expect(refused).not.toContain(job.id)
    expect(before).toContain(job.id)
    expect(job.score).not.toBe('')
    expect(await client.zrange(prioritized, 0, '-1')).toEqual(before.filter((id) => id !== job.id))
  })

  test('is the head where all were refused', async () => {
    await loop.fill(2)
    const [, second] = await suspected()
    expect(await probeId()).toBe(second)
  })

  test('is found near both ends of a long list', async () => {
    await loop.fill(2)
    await suspected()
    const ids = Array.from({ length: 30_000 }, (_, i) => `long-${i}`)
    await client.lpush(wait, ...ids)
    const ends = new Set<string>()
    for (let i = 0; i < 8; i++) {
      await loop.pass(10 + i * 3.331)
      const job = await loop.next()
      const number = Number(job.id.slice(5))
      expect(Math.min(number, 30_000 - number)).toBeLessThanOrEqual(10_000)
      ends.add(number < 15_000 ? 'first' : 'last')
      expect(await loop.queue.backend.store.run('give-back', giveBackArguments([job], ''))).toMatchObject([
        1,
        expect.any(Number),
      ])
      expect(await client.hget(`${loop.queue.base}meta:shape`, 'probe')).toBe('seek 10000')
    }
    expect(ends.size).toBe(2)
    await client.del(wait)
  })

  test('opens the gate when it goes well', async () => {
    await loop.fill(8)
    await suspected()
    await loop.next()
    expect(await loop.depart(3, HORIZON_US)).toEqual([])
    expect((await loop.tell(ok())).changes).toMatchObject([{ kind: 'resumed' }])
    expect(await loop.depart(3, HORIZON_US)).toHaveLength(3)
  })
})

describe('of workers', () => {
  /** Far less than an unanswered probe is waited for. */
  const SOON_MS = 5000
  /** The probe is granted at once, and due so late that whatever the tests do before comes first. */
  const PAUSE_MS = 2000
  const SHAPE = { rate: '500/s', maxLatenessMs: 50, horizonMs: 2 * PAUSE_MS }

  /** A queue after a hard pause, and a worker that holds its probe. */
  async function probing() {
    const queue = shop.queue(SHAPE)
    await queue.addBulk(jobs(4))
    let calls = 0
    const processor = async () => {
      calls += 1
      if (calls === 1) throw new Told({ kind: 'pause', forMs: PAUSE_MS, hard: true, ...said })
    }
    const worker = shop.worker(queue, processor, { feedback: ears, concurrency: 1 })
    const asked = callsOf(worker)
    const changes = eventsOf<FeedbackChange>('feedback', worker)
    const departed = departuresOf(worker)
    await changes.until((all) => all.some(({ kind }) => kind === 'pause'))
    const untilMs = Number(changes.all[0]!.until)
    await asked.until((all) => all.some(({ reply }) => (reply.grants[0]?.slotUs ?? 0) > untilMs * 1000 - 1000))
    return { queue, worker, processor, untilMs, departed }
  }

  test('one that came too late for its slot opens the way for another', async () => {
    const { worker, untilMs, departed } = await probing()
    const [completed, late] = [eventsOf('completed', worker), eventsOf('late', worker)]
    // The probe is held here, and this process is busy when it is due.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, untilMs + 100 - Date.now())
    await completed.reach(4)
    expect(late.all.length).toBeGreaterThan(0)
    expect(departed.all[1]!.wallMs - untilMs).toBeLessThan(SOON_MS)
  })

  test('one whose worker is paused is for another worker', async () => {
    const { queue, worker, processor, untilMs } = await probing()
    const other = shop.worker(queue, processor, { feedback: ears })
    const [asked, departed] = [callsOf(other), departuresOf(other)]
    await asked.until((all) => all.some(({ reply }) => reply.stop === 'closed'))
    await worker.pause()
    await departed.reach(4)
    expect(departed.all[0]!.wallMs - untilMs).toBeLessThan(SOON_MS)
  })
})
