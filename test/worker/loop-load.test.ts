import { afterEach, expect, test, vi } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { InvalidInputError } from '../../src/errors.ts'
import { LoopLoad } from '../../src/reports/loop-load.ts'
import { OverloadWatch } from '../../src/worker/overload-watch.ts'
import { useRedis } from '../support/redis.ts'
import { idleDispatcher } from './idle-host.ts'
import { callsOf, departuresOf, eventsOf, gate, jobs, Record, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const MAX = 0.9
const BLOCK_MS = 20

/** An event loop whose time passes as the test says. */
function heldLoop() {
  const use = { active: 0, idle: 0 }
  const pass = (ms: number, busy: number) => {
    use.active += ms * busy
    use.idle += ms * (1 - busy)
  }
  const load = new LoopLoad({ loopUse: () => ({ ...use }), now: () => use.active + use.idle })
  return { load, pass }
}

let stopBurning = () => {}
afterEach(() => stopBurning())

/** Keeps the event loop of this process busy, with moments for what comes in. @returns ends it */
function burn(): () => void {
  let burning = true
  const block = () => {
    const endMs = performance.now() + BLOCK_MS
    while (performance.now() < endMs);
    if (burning) setImmediate(block)
  }
  block()
  stopBurning = () => {
    burning = false
  }
  return stopBurning
}

/**
 * As {@link burn}, for workers made after this call, whose measured loop is busy while it burns and never else: on a
 * busy machine, a process that is stopped while it runs is overloaded before it burns.
 */
function burner(): () => () => void {
  let [burntMs, sinceMs] = [0, Number.POSITIVE_INFINITY]
  const burntBy = (now: number) => burntMs + Math.max(0, now - sinceMs)
  vi.spyOn(performance, 'eventLoopUtilization').mockImplementation(() => {
    const now = performance.now()
    const active = burntBy(now)
    return { active, idle: now - active, utilization: active / now }
  })
  return () => {
    sinceMs = performance.now()
    const stop = burn()
    return () => {
      stop()
      burntMs = burntBy(performance.now())
      sinceMs = Number.POSITIVE_INFINITY
    }
  }
}

type Load = { utilisation: number }

test('the utilisation is that of the last second, and slides; before it is known the loop was idle', () => {
  const { load, pass } = heldLoop()
  expect(load.utilisation()).toBe(0)
  pass(500, 1)
  expect(load.utilisation()).toBe(0.5)
  pass(500, 0.5)
  expect(load.utilisation()).toBe(0.75)
  pass(500, 0)
  expect(load.utilisation()).toBe(0.25)
  pass(500, 0)
  expect(load.utilisation()).toBe(0)
  for (let i = 0; i < 40; i++) {
    pass(50, 0.75)
    load.utilisation()
  }
  expect(load.utilisation()).toBeCloseTo(0.75, 9)
})

test('calls in between do not shorten the window', () => {
  const { load, pass } = heldLoop()
  pass(600, 1)
  for (let i = 0; i < 300; i++) {
    pass(1, 0)
    load.utilisation()
  }
  expect(load.utilisation()).toBeCloseTo(0.6, 9)
})

test('the loop of this process is measured', async () => {
  const load = new LoopLoad({ windowMs: 100 })
  const stop = burn()
  const endMs = performance.now() + 300
  while (performance.now() < endMs) await new Promise((resolve) => setImmediate(resolve))
  stop()
  expect(load.utilisation()).toBeGreaterThan(0.9)
})

test('overloaded above the bound, relieved below 0.8 of it, nothing in between', () => {
  const { load, pass } = heldLoop()
  const seen: [string, boolean, number][] = []
  let woken = 0
  const tell = (event: string, { utilisation }: Load) => seen.push([event, watch.overloaded, utilisation])
  const watch: OverloadWatch = new OverloadWatch(0.5, { wake: () => (woken += 1) }, { emit: tell } as never, load)
  for (const busy of [0.5, 0.51, 0.9, 0.45, 0.41, 0.39, 0.45, 0.5, 0.6]) {
    pass(1000, busy)
    watch.check()
  }
  expect(seen.map(([event, overloaded]) => [event, overloaded])).toEqual([
    ['overloaded', true],
    ['relieved', false],
    ['overloaded', true],
  ])
  expect(seen.map(([, , utilisation]) => Number(utilisation.toFixed(3)))).toEqual([0.51, 0.39, 0.6])
  expect(woken).toBe(3)
})

test.each([0, -1, 1.1, Number.NaN])('maxLoopUtilisation %s is refused', (maxLoopUtilisation) => {
  const make = () => shop.worker({ name: 'refused' }, async () => {}, { maxLoopUtilisation })
  expect(make).toThrow(InvalidInputError)
  expect(make).toThrow(`maxLoopUtilisation must be a share > 0 and at most 1; got ${maxLoopUtilisation}`)
})

test('an overloaded worker gives back what it holds, lets run what runs, and goes on when it is relieved', async () => {
  // No job is late, and no second slot comes, however long the machine stops.
  const queue = shop.queue({ rate: '1/min', horizonMs: 240_000, maxLatenessMs: 60_000 })
  await queue.waitUntilReady()
  const released = gate()
  const burnOn = burner()
  const worker = shop.worker(queue, (job) => (job.name === 'job0' ? released.opened : Promise.resolve()), {
    ...{ concurrency: 4, lockDuration: 1_200_000, maxLoopUtilisation: MAX },
  })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  const [overloaded, relieved] = [eventsOf<Load>('overloaded', worker), eventsOf<Load>('relieved', worker)]
  const completed = eventsOf('completed', worker)
  await queue.addBulk(jobs(5))
  await calls.until((all) => all.reduce((sum, { reply }) => sum + reply.grants.length, 0) === 4)
  await departed.reach(1)
  expect(await queue.getJobCounts('wait', 'active')).toEqual({ wait: 1, active: 4 })
  const stop = burnOn()
  const [load] = await overloaded.reach(1)
  expect(load?.utilisation).toBeGreaterThan(MAX)
  const asked = calls.all.length
  while ((await queue.getActiveCount()) > 1);
  expect(await queue.getJobCounts('wait', 'active')).toEqual({ wait: 4, active: 1 })
  expect(relieved.all.length).toBe(0)
  expect(calls.all.length).toBe(asked)
  stop()
  const [less] = await relieved.reach(1)
  expect(less?.utilisation).toBeLessThan(MAX * 0.8)
  await calls.until((all) => all.length > asked && all.at(-1)?.reply.grants.length === 3)
  expect(await queue.getJobCounts('wait', 'active')).toEqual({ wait: 1, active: 4 })
  released.open()
  await completed.reach(1)
  await worker.close()
  expect(await queue.getJobCounts('wait', 'active', 'completed')).toEqual({ wait: 4, active: 0, completed: 1 })
  expect((await queue.getJobs(['wait'], 0, -1, true)).map(({ name }) => name)).toEqual(['job1', 'job2', 'job3', 'job4'])
  expect(departed.all.map(({ name }) => name)).toEqual(['job0'])
})

test('where a finish fetches the next job, an overloaded worker finishes without', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.addBulk(jobs(3))
  const released = gate()
  const burnOn = burner()
  const worker = shop.worker(queue, () => released.opened, { maxLoopUtilisation: MAX })
  const departed = departuresOf(worker)
  const completed = eventsOf('completed', worker)
  const [overloaded, relieved] = [eventsOf<Load>('overloaded', worker), eventsOf<Load>('relieved', worker)]
  await departed.reach(1)
  const stop = burnOn()
  await overloaded.reach(1)
  released.open()
  await completed.reach(1)
  expect(await queue.getJobCounts('wait', 'active')).toEqual({ wait: 2, active: 0 })
  expect([departed.all.length, relieved.all.length]).toEqual([1, 0])
  stop()
  await completed.reach(3)
  expect(relieved.all.length).toBe(1)
})

test('a marker that an overloaded worker takes goes to another one', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.waitUntilReady()
  const burnOn = burner()
  const [ran, took] = [new Record<string>(), new Record<string>()]
  const make = (name: string, options = {}) => {
    const worker = shop.worker(queue, async () => ran.add(name), { ...options, drainDelay: 300, autorun: false })
    const backend = worker.getBackend()
    const wait = backend.waitForJob.bind(backend)
    backend.waitForJob = async (timeoutS) => {
      const marker = await wait(timeoutS)
      if (marker) took.add(name)
      return marker
    }
    return { worker, calls: callsOf(worker) }
  }
  const busy = make('busy', { maxLoopUtilisation: MAX })
  const other = make('other')
  const overloaded = eventsOf<Load>('overloaded', busy.worker)
  const blocked = async (count: number) => {
    const client = redis.client()
    const list = async () => String(await client.client('LIST')).split('\n')
    const own = (line: string) => line.includes(` name=${redis.prefix}`) && line.includes('cmd=bzpopmin')
    while ((await list()).filter(own).length < count);
  }
  // The one that blocked first gets the marker.
  void busy.worker.run()
  await blocked(1)
  void other.worker.run()
  await blocked(2)
  const stop = burnOn()
  await overloaded.reach(1)
  const asked = busy.calls.all.length
  await queue.add('job', {})
  await ran.reach(1)
  expect(ran.all).toEqual(['other'])
  // Woken by the marker, and not because its own wait was over.
  expect(took.all).toEqual(['busy', 'other'])
  expect(busy.calls.all.length).toBe(asked)
  stop()
})

test('a marker that came just before the overload is noticed is left to others before the worker sits out', async () => {
  const marker = gate<number>()
  const given: [number, boolean][] = []
  let [asks, overloaded, closing] = [0, false, false]
  const dispatcher = idleDispatcher({
    closing: () => closing,
    overloaded: () => overloaded,
    ask: async () => {
      asks += 1
      return readDeparture([1, String(Date.now() * 1000), 0, [], 'empty', '', '', 0, 0])
    },
    waitForMarker: () => (asks === 1 ? marker.opened : new Promise<number>(() => {})),
    giveBack: async (held, leaving) => void given.push([held.length, leaving]),
    process: async () => {},
  })
  const running = dispatcher.run()
  await expect.poll(() => asks).toBe(1)
  marker.open(0)
  overloaded = true
  await expect.poll(() => given).toEqual([[0, true]])
  expect(asks).toBe(1)
  overloaded = false
  dispatcher.wake()
  await expect.poll(() => asks).toBe(2)
  closing = true
  dispatcher.wake()
  await running
})

test('an overloaded worker can be paused, resumed and closed', async () => {
  const queue = shop.queue({ capacity: 100 })
  const worker = shop.worker(queue, async () => {}, { maxLoopUtilisation: MAX })
  const overloaded = eventsOf<Load>('overloaded', worker)
  const completed = eventsOf('completed', worker)
  await worker.waitUntilReady()
  const stop = burn()
  await overloaded.reach(1)
  await worker.pause()
  await worker.resume()
  await overloaded.reach(2)
  stop()
  await queue.add('job', {})
  await completed.reach(1)
  burn()
  await overloaded.reach(3)
  await worker.close()
})
