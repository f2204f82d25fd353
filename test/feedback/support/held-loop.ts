import { afterAll, vi } from 'vitest'
import { type HeldJob, heldJobs } from '../../../src/departure/held-job.ts'
import type { Concurrency, Feedback, Ok, Pause, Slow } from '../../../src/feedback/feedback.ts'
import { type AdaptOptions, checkFeedbackOptions } from '../../../src/feedback/options.ts'
import {
  applyFeedback,
  encodeFeedbackRequest,
  type FeedbackReply,
  type RefusedTarget,
} from '../../../src/feedback/request.ts'
import type { StoredShape } from '../../../src/shape/stored.ts'
import { HeldQueue } from '../../model/held-queue.ts'
import type { TestRedis } from '../../support/redis.ts'
import { noteEnds } from '../../support/shape-fields.ts'

const said = { scope: 'queue', source: 'status', reason: '429' } as const

export const pause = (forMs?: number, hard = false): Pause => ({ kind: 'pause', forMs, hard, ...said })
export const slow = (how: Pick<Slow, 'factor' | 'rate' | 'ttlMs'>): Slow => ({ kind: 'slow', ...how, ...said })
export const concurrency = (limit: number, ttlMs: number): Concurrency => ({
  kind: 'concurrency',
  limit,
  ttlMs,
  ...said,
})
/** As after 421: half as many. */
export const fewer = (ttlMs = 900_000): Concurrency => ({ kind: 'concurrency', factor: 0.5, ttlMs, ...said })
/** As after ECONNREFUSED. */
export const unreachable: Pause = { kind: 'pause', forMs: undefined, hard: true, about: 'destination', ...said }
export const ok = (quota: Pick<Ok, 'remaining' | 'resetMs'> = {}): Ok => ({ kind: 'ok', ...quota, ...said })

/** What one answer is told with. */
interface Telling {
  /** When the call departed, µs. Default: now. */
  readonly sentUs?: number
  /** Default true. */
  readonly adapt?: boolean | AdaptOptions
  /** Calls that went well. Default: none. */
  readonly oks?: number
  /** When the last of them departed, µs. Default: nobody says. */
  readonly okUs?: number
  /** 0 to 1. Default 0. */
  readonly jitter?: number
}

/** What is told of a refusal. */
interface Refusing extends Pick<Telling, 'sentUs' | 'adapt' | 'oks'> {
  /** When the last call that went well departed, µs. Default: none did. */
  readonly okUs?: number
  readonly retried?: boolean
  readonly target?: RefusedTarget
}

/** A real queue by a clock that stands still until it is moved, told by hand what the other side says. */
export class HeldLoop {
  readonly queue: HeldQueue

  constructor(redis: TestRedis, name: string) {
    this.queue = new HeldQueue(redis, redis.client(), name)
    afterAll(() => this.queue.close())
  }

  get nowUs(): number {
    return this.queue.nowUs
  }

  /** As this process knows it. */
  get shape(): StoredShape {
    return this.queue.backend.store.memory.stored as StoredShape
  }

  tell(feedback: Feedback, telling: Telling = {}): Promise<FeedbackReply> {
    return applyFeedback(this.queue.backend.store, this.request(feedback, telling))
  }

  /** The next job, as a worker holds it that has departed with it. */
  async next(): Promise<HeldJob> {
    const [job] = heldJobs(await this.queue.depart(1, 50_000))
    return job as HeldJob
  }

  /** Tells of a job that was refused. */
  refuse(
    job: HeldJob,
    feedback: readonly Feedback[],
    { oks = 0, okUs, ...rest }: Refusing = {},
  ): Promise<FeedbackReply> {
    const { adapt } = checkFeedbackOptions({ adapt: rest.adapt ?? false })
    vi.spyOn(Math, 'random').mockReturnValueOnce(0)
    const request = encodeFeedbackRequest({
      ...{ found: feedback.map((one) => ({ feedback: one })), sentUs: rest.sentUs ?? this.nowUs, by: 'test', adapt },
      ...{ oks, okUs, okAgoMs: okUs && (this.nowUs - okUs) / 1000 },
      ...{
        job: { held: job, head: true, giveUpAfterMs: 259_200_000, retried: rest.retried ?? false, target: rest.target },
      },
    })
    return applyFeedback(this.queue.backend.store, request)
  }

  request(feedback: Feedback, { sentUs = this.nowUs, adapt = true, oks = 0, okUs, jitter = 0 }: Telling = {}): string {
    const options = checkFeedbackOptions({ adapt })
    vi.spyOn(Math, 'random').mockReturnValueOnce(jitter)
    const okAgoMs = okUs && (this.nowUs - okUs) / 1000
    return encodeFeedbackRequest({
      found: [{ feedback }],
      sentUs,
      by: 'test',
      adapt: options.adapt,
      oks,
      okUs,
      okAgoMs,
    })
  }

  /** Time passes; what ends meanwhile has ended. */
  async pass(ms: number): Promise<void> {
    await this.queue.advanceTo(this.nowUs + ms * 1000)
    await noteEnds(this.queue.backend.store)
    await this.queue.backend.store.readMeter()
  }

  /** A while in which every call went well, at the rate in force. */
  async quiet(ms: number, oks = Math.ceil((this.rate as number) * (ms / 1000))): Promise<void> {
    await this.pass(ms)
    await this.tell(ok(), { oks })
  }

  /** The rate in force, units a second, to a thousandth; undefined where there is none. */
  get rate(): number | undefined {
    const interval = this.shape.number('interval')
    return interval === undefined ? undefined : Math.round(1e9 / interval) / 1000
  }

  /** What is left of the pause, ms, to a microsecond. */
  get pausedMs(): number {
    return Math.max(0, this.shape.pausedUntilUs - this.nowUs) / 1000
  }

  /** Adds so many jobs. */
  async fill(jobs: number): Promise<void> {
    await this.queue.queue.addBulk(Array.from({ length: jobs }, () => ({ name: 'job', data: {} })))
  }

  /** The slots granted now, µs from now. */
  async depart(jobs: number, horizonUs = 0): Promise<number[]> {
    const { grants } = await this.queue.depart(jobs, horizonUs)
    return grants.map(({ slotUs }) => slotUs - this.nowUs)
  }
}
