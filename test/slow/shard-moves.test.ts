import { setTimeout as sleep } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import { useSluice } from '../../packages/cli/test/sluice-process.ts'
import type { Shape, ShapedQueue } from '../../src/index.ts'
import type { ShardedQueue, ShardedWorker } from '../../src/sharding/index.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { ShardShop } from '../sharding/support/shop.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const sluice = useSluice(redis)

/** How often the process that moves a queue is killed; MOVE_KILLS. */
const KILLS = Number(process.env.MOVE_KILLS ?? 30)
/** When it is killed at the latest, after its start: a move that nothing disturbs takes about as long. */
const LATEST_MS = 4000
const RATE = 60
const BURST = 12
const SHAPE: Shape = { rate: `${RATE}/s`, burst: BURST, capacity: 2000, groups: {}, audit: 10_000 }
const GROUPS = ['a', 'b', 'c', 'd', 'e']

interface Opened {
  readonly queue: ShardedQueue
  readonly worker: ShardedWorker
}

/** Adds a job every few ms to the queue that is the current one, and knows which were accepted. */
class Producer {
  readonly accepted: number[] = []
  target: ShardedQueue
  #isOver = false
  readonly #running: Promise<void>

  constructor(target: ShardedQueue) {
    this.target = target
    this.#running = this.#run()
  }

  stop(): Promise<void> {
    this.#isOver = true
    return this.#running
  }

  async #run(): Promise<void> {
    for (let n = 0; !this.#isOver; n++) {
      const opts = { group: { id: GROUPS[n % GROUPS.length] as string }, ...(n % 7 === 0 ? { delay: 300 } : {}) }
      const offer = await this.target.offer('job', { n }, opts)
      if (offer.accepted) this.accepted.push(n)
      await sleep(30)
    }
  }
}

test(
  `a process that moves queue after queue is killed ${KILLS} times: each job and each tick runs once, within the bound`,
  async () => {
    const shop = new ShardShop({ connection, prefix })
    const ran: string[] = []
    const stalled: string[] = []
    const process = async ({ name, id, data }: Job) => {
      ran.push(name === 'tick' ? `${id}` : `${data.n}`)
    }
    const open = (round: number): Opened => {
      const options = { shards: 1 + (round % 3), shape: SHAPE }
      const queue = shop.queue(`q${round}`, options)
      const worker = shop.worker(`q${round}`, process, { ...options, concurrency: 10 })
      worker.on('stalled', (id) => stalled.push(id))
      return { queue, worker }
    }
    const all = [open(0)]
    await all[0]?.queue.waitUntilReady()
    const shard = (await all[0]?.queue.queueOfGroup('a')) as ShapedQueue
    await shard.upsertJobScheduler('ticks', { every: 700 }, { name: 'tick', opts: { group: { id: 'a' } } as never })
    const producer = new Producer(all[0]?.queue as ShardedQueue)
    let kills = 0
    while (kills < KILLS) {
      const next = open(all.length)
      await next.queue.waitUntilReady()
      kills += await move(all.at(-1) as Opened, next, producer, KILLS - kills)
      await all.at(-1)?.worker.close()
      all.push(next)
    }
    await producer.stop()
    const jobs = () => ran.filter((one) => !one.startsWith('repeat:'))
    await expect
      .poll(() => jobs().length, { timeout: 60_000, interval: 50 })
      .toBeGreaterThanOrEqual(producer.accepted.length)
    await all.at(-1)?.worker.close()
    expect(
      jobs()
        .map(Number)
        .toSorted((a, b) => a - b),
    ).toEqual(producer.accepted)
    expect(new Set(ran).size).toBe(ran.length)
    expect(stalled).toEqual([])
    const slots = (await Promise.all(all.map(({ queue }) => shop.slotsUs(queue)))).flat()
    expect(slots.length).toBeGreaterThanOrEqual(ran.length)
    const worst = worstWindow(slots, { rate: `${RATE}/s`, burst: BURST })
    globalThis.process.stdout.write(
      `a moving process killed ${kills} times in ${all.length - 1} moves: ${jobs().length} jobs, ` +
        `${ran.length - jobs().length} ticks, worst window ${worst?.excessUs} µs above the bound\n`,
    )
    expect(worst?.excessUs).toBeLessThanOrEqual(1)
    for (const { queue } of all) await queue.obliterate({ force: true })
    expect(shop.errors).toEqual([])
  },
  60_000 + KILLS * 30_000,
)

/** Moves a queue; the process is killed at random, at most so often. @returns how often it was */
async function move(old: Opened, next: Opened, producer: Producer, most: number): Promise<number> {
  const [from, to] = [old.queue.name, next.queue.name]
  for (let kills = 0; ; kills++) {
    const running = sluice.start(['shards', 'move', from, to, '--reason', 'another number'])
    const isOver = running.ended.then(({ code }) => code)
    const killed = kills < most ? sleep(Math.random() * LATEST_MS).then(() => 'kill' as const) : isOver
    const first = Promise.race([isOver, killed])
    let end: Awaited<typeof first> | undefined
    void first.then((one) => {
      end = one
    })
    while (end === undefined) {
      // Once the new queue is paused, the producers are switched to it.
      if (await isHeld(next.queue)) producer.target = next.queue
      await sleep(5)
    }
    if (end !== 'kill') {
      expect(await running.ended).toMatchObject({ code: 0 })
      producer.target = next.queue
      return kills
    }
    running.child.kill('SIGKILL')
    await running.ended
  }
}

async function isHeld(queue: ShardedQueue): Promise<boolean> {
  return (await queue.meter()).each.every(({ paused }) => paused)
}
