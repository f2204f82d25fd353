import { setTimeout as sleep } from 'node:timers/promises'
import type { ShapedQueue } from '../queue/queue.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { Coordinator } from './coordinator.ts'
import { type Shards, shardOf } from './placement.ts'
import { burstOfShard } from './shapes.ts'

const LOOK_MS = 500
/** Processes learn of a new placement within two seconds: so often in a row a shard has to be found as wanted. */
const LOOKS = 6
/** Running jobs of a shard that are looked at. */
const RUNNING = 10_000
const STATES = ['waiting', 'active', 'delayed', 'prioritized', 'waiting-children'] as const

/** One change of the number of shards. Each step may be repeated, so that a call that was broken off is completed by another. */
export class Resharding {
  readonly #head: ShapeStore
  readonly #coordinator: Coordinator
  readonly #queues: () => readonly ShapedQueue[]
  readonly #target: number
  readonly #signal: AbortSignal | undefined

  constructor(
    head: ShapeStore,
    coordinator: Coordinator,
    queues: () => readonly ShapedQueue[],
    target: number,
    signal: AbortSignal | undefined,
  ) {
    this.#head = head
    this.#coordinator = coordinator
    this.#queues = queues
    this.#target = target
    this.#signal = signal
  }

  async run(current: Shards): Promise<void> {
    const target = this.#target
    const before = current.placed === target ? current.from : current.placed
    const count = Math.max(current.count, target)
    // New shards have places before they take jobs.
    await this.#set({ count, placed: current.placed, from: current.from }, current.count)
    await this.#share(count)
    await this.#set({ count, placed: target, from: before }, count)
    await this.#until(async () => (await this.#moved(before)) && (await this.#leftEmpty()))
    await this.#set({ count: target, placed: target, from: target }, count)
    await this.#share(target)
  }

  async #set({ count, placed, from }: Shards, known: number): Promise<void> {
    const [status] = (await this.#head.run('set-shards', [count, placed, from, known])) as [number]
    if (status !== 1) throw new Error(`the number of shards was changed by another call meanwhile; got ${status}`)
    await this.#coordinator.settle()
  }

  /** Divides the burst by so many shards. */
  async #share(count: number): Promise<void> {
    const burst = this.#head.memory.stored?.number('burst') ?? count
    const change = { by: 'shards', reason: `${count} shards` }
    const part = { burst: burstOfShard(burst, count) }
    await Promise.all(this.#queues().map((queue) => queue.setShape(part, change)))
  }

  async #until(done: () => Promise<boolean>): Promise<void> {
    for (let looks = 0; looks < LOOKS; ) {
      this.#signal?.throwIfAborted()
      looks = (await done()) ? looks + 1 : 0
      await sleep(LOOK_MS, undefined, this.#signal ? { signal: this.#signal } : {})
    }
  }

  /** Whether no group that belongs elsewhere has waiting or running jobs in its old shard. */
  async #moved(before: number): Promise<boolean> {
    const stays = (id: string, shard: number) => shardOf(`group:${id}`, this.#target) === shard
    const checks = this.#queues()
      .slice(0, before)
      .map(async (queue, shard) => {
        const groups = await groupsOf(queue)
        return groups.every((id) => stays(id, shard))
      })
    return (await Promise.all(checks)).every(Boolean)
  }

  /** Whether the shards that leave have no job any more. */
  async #leftEmpty(): Promise<boolean> {
    const leaving = this.#queues().slice(this.#target)
    const counts = await Promise.all(leaving.map((queue) => queue.getJobCounts(...STATES)))
    return counts.every((count) => Object.values(count).every((n) => n === 0))
  }
}

/** The groups that have waiting or running jobs. */
async function groupsOf(queue: ShapedQueue): Promise<string[]> {
  const shape = queue.backend.store.memory.stored
  if (!shape?.hasGroups) return []
  const waiting = await Promise.all(
    (['waiting', 'limited', 'maxed', 'paused'] as const).map((status) => queue.getGroupsByStatus(status)),
  )
  const running = await queue.getActive(0, RUNNING)
  const ids = running.map((job) => (job.opts as { group?: { id: string } }).group?.id)
  return [...waiting.flat(), ...ids.filter((id) => id !== undefined)]
}
