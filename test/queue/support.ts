import { randomUUID } from 'node:crypto'
import type { Job } from 'bullmq'
import { expect } from 'vitest'
import type { QueueFullError, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import type { Workshop } from '../worker/support.ts'

/** Jobs for `addBulk`. */
export function many(count: number, opts: object = {}): { name: string; data: { n: number }; opts: object }[] {
  return Array.from({ length: count }, (_, n) => ({ name: 'job', data: { n }, opts }))
}

/** What a promise rejects with; fails where it does not. */
export async function rejection<E extends Error = Error>(promise: Promise<unknown>): Promise<E> {
  const settled = await promise.then(
    (value) => ({ value }),
    (error: E) => ({ error }),
  )
  if (!('error' in settled)) expect.fail(`expected a rejection; it resolved with ${String(settled.value)}`)
  return settled.error
}

/** The refusal that one more job gets. */
export function refusal(queue: ShapedQueue, opts: object = {}): Promise<QueueFullError> {
  return rejection<QueueFullError>(queue.add('refused', {}, opts))
}

/** Takes jobs one by one, as BullMQ's manual processing does: a slot each, no horizon, and nothing runs by itself. */
export class Taker {
  readonly #worker: ShapedWorker

  constructor(shop: Workshop, queue: { name: string }) {
    this.#worker = shop.worker(queue, null, { autorun: false })
  }

  /** The next job, locked; fails where none may leave now. */
  async take(): Promise<Job> {
    const job = await this.tryTake()
    return job ?? expect.fail('expected a job to leave; none did')
  }

  tryTake(): Promise<Job | undefined> {
    // BullMQ's worker asks nothing for as long as the last answer told it to wait; a test asks anew.
    Object.assign(this.#worker, { limitUntil: 0 })
    return this.#worker.getNextJob(randomUUID(), { block: false }) as Promise<Job | undefined>
  }

  async complete(job: Job): Promise<void> {
    await job.moveToCompleted('done', job.token as string, false)
  }
}

/** Every key of a queue that is Sluice's own. */
export async function ownKeys(queue: ShapedQueue): Promise<string[]> {
  const client = (await queue.getBackend().client) as unknown as { keys(pattern: string): Promise<string[]> }
  const keys = await client.keys(`${queue.toKey('meta')}:*`)
  return keys.map((key) => key.slice(queue.toKey('').length)).sort()
}

/** Expects that this many ms pass between `before` and a moment that lies between the two reads of the clock. */
export function expectUntil(ms: number, at: Date, before: Date, after: Date): void {
  // Dates hold whole ms, and the answer is rounded up to one.
  expect(ms).toBeGreaterThanOrEqual(at.getTime() - after.getTime() - 1)
  expect(ms).toBeLessThanOrEqual(at.getTime() - before.getTime() + 2)
}
