import type { Redis } from 'ioredis'
import { giveBackArguments } from '../../../src/departure/give-back.ts'
import { type HeldJob, heldJobs } from '../../../src/departure/held-job.ts'
import { type DepartureReply, readDeparture } from '../../../src/departure/reply.ts'
import {
  encodeFeedbackRequest,
  type FeedbackReply,
  type FeedbackRequest,
  readFeedbackReply,
} from '../../../src/feedback/request.ts'
import type { Argument } from '../../../src/redis/commands.ts'
import { encodeShape, type Shape } from '../../../src/shape/shape.ts'
import { StoredShape } from '../../../src/shape/stored.ts'
import { heldText } from '../../model/replay.ts'

/** A queue that never runs dry, behind the scripts of `lua/`. Each call says what time it is, µs. */
export class ClosedLoop {
  readonly #client: Redis
  readonly #key: string
  readonly #random: () => number
  readonly #sha: Promise<string>
  #ended: string[] = []
  /** As every worker knows it: they hear of changes at once. */
  shape: StoredShape | undefined

  /** @param base key prefix of the queue, with its colon @param random what jitter is drawn from */
  constructor(client: Redis, base: string, random: () => number) {
    this.#client = client
    this.#key = `${base}meta:shape`
    this.#random = random
    this.#sha = client.script('LOAD', heldText(new URL('closed-loop.lua', import.meta.url))) as Promise<string>
  }

  async declare(nowUs: number, shape: Shape): Promise<void> {
    const [, stored] = (await this.#step(nowUs, 'declare', JSON.stringify(encodeShape(shape).fields))) as [1, string[]]
    this.#learn(stored)
  }

  async depart(nowUs: number, jobs: number, horizonUs: number): Promise<{ reply: DepartureReply; jobs: HeldJob[] }> {
    const { identity = '' } = this.shape ?? {}
    const ended = this.#ended.splice(0)
    const raw = (await this.#step(nowUs, 'depart', identity, jobs, horizonUs, ...ended)) as unknown[]
    const reply = readDeparture(raw)
    this.#learn(reply.news)
    return { reply, jobs: heldJobs(reply) }
  }

  async giveBack(nowUs: number, jobs: readonly HeldJob[]): Promise<void> {
    // As a worker that leaves, which gives its slots back too.
    await this.#step(nowUs, 'giveBack', ...giveBackArguments(jobs, 'fleet'))
  }

  /** The job went well. */
  ended({ id }: HeldJob): void {
    this.#ended.push(id)
  }

  /** The job comes again later. */
  async delay(nowUs: number, { id }: HeldJob): Promise<void> {
    await this.#step(nowUs, 'delay', id)
  }

  /** Its time has come: it goes behind what waits. */
  async promote(nowUs: number, { id }: HeldJob): Promise<void> {
    await this.#step(nowUs, 'promote', id)
  }

  async apply(nowUs: number, request: FeedbackRequest): Promise<FeedbackReply> {
    const [, shape, ...reply] = (await this.#step(nowUs, 'apply', this.#encode(request))) as [1, string[], ...unknown[]]
    this.#learn(shape)
    return readFeedbackReply(reply)
  }

  #encode(request: FeedbackRequest): string {
    const { random } = Math
    Math.random = this.#random
    try {
      return encodeFeedbackRequest(request)
    } finally {
      Math.random = random
    }
  }

  #learn(flat: readonly string[] | undefined): void {
    if (flat) this.shape = new StoredShape(flat)
  }

  async #step(nowUs: number, ...args: readonly Argument[]): Promise<unknown> {
    return this.#client.evalsha(await this.#sha, 1, this.#key, nowUs, ...(args as string[]))
  }
}
