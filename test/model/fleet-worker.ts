import { randomUUID } from 'node:crypto'
import {
  type DepartureRequest,
  Departures,
  type EndingLoop,
  Exchange,
  type Exchanged,
} from '../../src/departure/exchange.ts'
import { giveBack } from '../../src/departure/give-back.ts'
import { type HeldJob, membersOf } from '../../src/departure/held-job.ts'
import { finishedEnd, postponedEnd } from '../../src/departure/job-end.ts'
import { mostGivenBack } from '../../src/departure/jobs-per-script.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import type { Feedback } from '../../src/feedback/feedback.ts'
import {
  applyFeedback,
  encodeFeedbackRequest,
  type FeedbackReply,
  type RefusedJob,
} from '../../src/feedback/request.ts'
import { RedisClock } from '../../src/redis/clock.ts'
import type { Argument, Client } from '../../src/redis/commands.ts'
import { ShapeStore } from '../../src/shape/store.ts'
import { Dispatcher, type DispatchHost, type JobSource } from '../../src/worker/dispatcher.ts'
import { isMeantFor } from '../../src/worker/shape-wake.ts'
import { type BullmqArguments, bullmqArguments } from './bullmq-arguments.ts'
import type { Answers } from './combination.ts'
import type { Fleet, Grant } from './fleet.ts'
import type { Waiting } from './schedule.ts'

export interface WorkerTraits {
  readonly concurrency: number
  /** Round trip, µs, without random delays. */
  readonly roundTripUs: number
  /** When it starts, µs after the start of the run. */
  readonly startsAfterUs: number
  /** It is killed at the first moment without a job from then on, µs after the start of the run; undefined: never. */
  readonly diesAfterUs?: number | undefined
  /** When it closes, µs after the start of the run: it gives back the jobs it holds, and finishes those it runs. */
  readonly leavesAfterUs?: number | undefined
  /** When it is killed, µs after the start of the run, whatever it holds and runs. */
  readonly killedAfterUs?: number | undefined
}

const DRAIN_DELAY_US = 5_000_000

/** One worker: the library's loop with the library's calls, assembled as in ShapedWorker. */
export class FleetWorker {
  readonly #fleet: Fleet
  readonly #traits: WorkerTraits
  readonly #id = randomUUID()
  readonly #client: Client
  readonly #store: ShapeStore
  readonly #dispatcher: Dispatcher
  readonly #clock: RedisClock
  readonly #bullmq: BullmqArguments
  readonly #exchange: Exchange
  /** Successful calls since the last report of them, and the time of that report. */
  #oks = 0
  #toldUs = 0
  /** Pending calls for jobs. */
  #asks = 0
  #dead = false
  #leaving = false
  #marker: ((score: number) => void) | undefined

  constructor(fleet: Fleet, base: string, traits: WorkerTraits) {
    const { set } = fleet.redis.scripts
    this.#fleet = fleet
    this.#traits = traits
    this.#client = fleet.redis.clientAt(() => this.#halfTripUs())
    const { lockMs, stalledMs } = fleet.locks
    this.#bullmq = bullmqArguments(base, { lockDuration: lockMs, stalledInterval: stalledMs })
    this.#store = new ShapeStore(base, async () => this.#client, set)
    const late = () => (fleet.uniform() < 0.02 ? 4000 : 1000) * fleet.uniform()
    this.#clock = new RedisClock(fleet.time.local(fleet.startUs - 1e9 * fleet.uniform(), late))
    const wallMs = () => this.#clock.time.wallMs()
    const departures = new Departures(
      set,
      this.#store,
      async () => this.#client,
      (_, send) => send(),
      lockMs,
      wallMs,
    )
    this.#exchange = new Exchange(departures, this.#store, { id: this.#id, allowUnshaped: false })
    this.#dispatcher = new Dispatcher(this.#host(), this.#source(), this.#clock)
    this.#dispatcher.on('error', (error) => this.#fails(error))
    this.#exchange.loop = this.#noting(this.#dispatcher)
    this.#store.on('shape', (shape, before) => {
      const later = shape.pausedUntilUs > (before?.pausedUntilUs ?? 0)
      if (later && shape.pausedUntilUs > (this.#clock.nowUs() ?? 0)) this.#dispatcher.release(shape)
    })
  }

  /** Records when Redis granted jobs, including those fetched by a finish. */
  #noting(loop: EndingLoop): EndingLoop {
    const { granted, time } = this.#fleet
    return {
      get horizonUs() {
        return loop.horizonUs
      },
      get nowMs() {
        return loop.nowMs
      },
      get running() {
        return loop.running
      },
      get fetchesOnFinish() {
        return loop.fetchesOnFinish
      },
      exchanged: (exchanged: Exchanged) => {
        const { nowUs = time.nowUs } = exchanged
        for (const result of exchanged.results) {
          if (typeof result === 'object') granted.set(Number(result[1]), { atUs: nowUs, slotUs: nowUs })
        }
        if (exchanged.reply) this.#noteGrants(exchanged.reply)
        loop.exchanged(exchanged)
      },
    }
  }

  #noteGrants({ grants, nowUs }: DepartureReply): void {
    for (const { id, slotUs } of grants) this.#fleet.granted.set(Number(id), { atUs: nowUs as number, slotUs })
  }

  /** Whether it will be killed. */
  get dies(): boolean {
    return this.#traits.diesAfterUs !== undefined || this.#traits.killedAfterUs !== undefined
  }

  run(): void {
    if (this.#dead || this.#leaving) return
    this.#checkStalled().catch((error: unknown) => this.#fails(error))
    this.#dispatcher.run().catch((error: unknown) => this.#fails(error))
  }

  /** Checks for stalled jobs like BullMQ's workers, while jobs of killed workers may have to be found. */
  async #checkStalled(): Promise<void> {
    const { time, locks } = this.#fleet
    while (this.#fleet.mayStall && !this.#dead && !this.#leaving) {
      await time.until(time.nowUs + this.#halfTripUs())
      const args = this.#bullmq.moveStalledJobsToWait(Math.floor(this.#clock.time.wallMs()))
      const found = await this.#fleet.redis.run('sluice:moveStalledJobsToWait', args)
      this.#fleet.foundStalled(found as string[])
      await time.until(time.nowUs + this.#halfTripUs() + locks.stalledMs * 1000)
    }
  }

  /** Dies without notice: the jobs it holds and runs are lost. */
  die(): void {
    this.#dead = true
    this.#fleet.leaveMarker(this)
  }

  leave(): void {
    if (this.#dead) return
    this.#leaving = true
    this.#fleet.leaveMarker(this)
    this.#dispatcher.wake()
  }

  dieIdle(): void {
    const { time } = this.#fleet
    const busy = this.#asks + this.#dispatcher.running + this.#dispatcher.held.length > 0
    if (busy) time.at(time.nowUs + 1000, () => this.dieIdle())
    else this.die()
  }

  hears(message: string): void {
    if (this.#dead || !isMeantFor(this.#id, message)) return
    const { time } = this.#fleet
    time.at(time.nowUs + this.#halfTripUs(), () => this.#dispatcher.wake())
  }

  getsMarker(score: number): void {
    this.#marker?.(score)
  }

  #halfTripUs(): number {
    return (this.#traits.roundTripUs / 2) * (1 + 0.2 * this.#fleet.uniform())
  }

  #fails(error: unknown): void {
    if (!this.#dead) this.#fleet.errors.push(error)
  }

  #host(): DispatchHost {
    return {
      maxRateLimitDelayMs: 30_000,
      lockDurationMs: this.#fleet.locks.lockMs,
      concurrency: () => this.#traits.concurrency,
      stopping: () => this.#dead || this.#leaving,
      closing: () => this.#dead || this.#leaving,
      overloaded: () => false,
      receivedUntilMs: () => (this.#fleet.mayDie ? Number.NEGATIVE_INFINITY : this.#clock.time.monotonicMs()),
      waitForMarker: (untilMs) => this.#waitForMarker(untilMs),
      process: async ([held], onEnd) => {
        await this.#process(held as HeldJob).catch((error: unknown) => this.#fails(error))
        onEnd(held as HeldJob)
      },
      recall: () => this.#exchange.recall(),
      giveBack: async (jobs, leaving) => {
        if (this.#dead) return
        for (const { id } of jobs) this.#fleet.givenBack += this.#fleet.jobs[Number(id)]?.cost ?? 1
        const most = mostGivenBack(this.#store.memory.stored)
        await giveBack(jobs, leaving ? this.#id : '', most, (args) => this.#store.run('give-back', args))
      },
    }
  }

  #source(): JobSource {
    const exchange = this.#exchange
    return {
      ready: async () => {},
      ask: (request) => this.#ask(request),
      get shape() {
        return exchange.shape
      },
    }
  }

  async #ask(request: DepartureRequest): Promise<DepartureReply> {
    this.#asks += 1
    const reply = await this.#exchange.ask(request)
    // The worker takes over the jobs of the reply in the next turns of the event loop.
    this.#fleet.time.at(this.#fleet.time.nowUs + 1, () => {
      this.#asks -= 1
    })
    this.#noteGrants(reply)
    return reply
  }

  async #waitForMarker(untilMs: number): Promise<number | undefined> {
    const { time } = this.#fleet
    const forUs = untilMs ? Math.min(10_000_000, untilMs * 1000 - time.nowUs) : DRAIN_DELAY_US
    if (forUs <= 0) return 0
    await time.until(time.nowUs + this.#halfTripUs())
    const score = await new Promise<number | undefined>((resolve) => {
      const stop = time.at(time.nowUs + forUs, () => resolve(undefined))
      this.#marker = (found) => {
        stop()
        resolve(found)
      }
      this.#fleet.waitForMarker(this)
    })
    this.#fleet.leaveMarker(this)
    await time.until(time.nowUs + this.#halfTripUs())
    if (score === undefined) return undefined
    return untilMs && score > untilMs ? untilMs : score
  }

  async #process(held: HeldJob): Promise<void> {
    const { time, departed, jobs } = this.#fleet
    const number = Number(held.id)
    if (this.#dead) return
    const { atUs: grantedUs } = this.#fleet.granted.get(number) as Grant
    departed.push({ number, slotUs: held.slotUs, startedUs: time.nowUs, grantedUs, members: membersOf(held) })
    this.#dispatcher.departed(held.id)
    await time.until(time.nowUs + (jobs[number] as Waiting).runsUs)
    if (this.#dead) return
    const code = await this.#endJob(held, number)
    if (code < 0) throw new Error(`job ${number} could not be finished: ${code}`)
  }

  /** Completes the job, or, where it fails, delays it for its retry. */
  async #endJob(held: HeldJob, number: number): Promise<number> {
    const { failed, jobs } = this.#fleet
    const { fails = 0, backoffUs = 0 } = jobs[number] as Waiting
    const timestamp = Math.floor(this.#clock.time.wallMs())
    const { fetches } = this.#exchange
    if ((jobs[number] as Waiting).refused && !this.#fleet.refused.has(number)) return this.#refuse(held, number)
    const before = failed.get(number) ?? 0
    if (before < fails) {
      failed.set(number, before + 1)
      const [at, delayMs] = [timestamp + backoffUs / 1000, backoffUs / 1000]
      const args = this.#bullmq.moveToDelayed(held, held.token, at, delayMs, fetches)
      return this.#exchange.end(postponedEnd(this.#withoutKeys('moveToDelayed', args)))
    }
    const args = this.#bullmq.moveToCompleted(held, held.token, timestamp, fetches)
    const code = await this.#exchange.end(finishedEnd(this.#withoutKeys('moveToFinished', args), held.token, false))
    this.#fleet.ended += 1
    this.#wentWell(held)
    return code
  }

  #withoutKeys(script: string, args: readonly Argument[]): readonly Argument[] {
    return args.slice(this.#fleet.redis.scripts.set.command(script).keys)
  }

  /**
   * As in src/feedback/loop.ts: the refusal is reported to the fleet, and the job goes back to the head of the queue.
   */
  async #refuse(held: HeldJob, number: number): Promise<number> {
    const { forMs, hard } = this.#fleet.answers as Answers
    this.#fleet.refused.add(number)
    const feedback: Feedback = { kind: 'pause', forMs, hard, scope: 'queue', source: 'retry-after', reason: 'test' }
    const job = { held, head: true, giveUpAfterMs: 259_200_000, retried: false }
    const grant = this.#fleet.granted.get(number) as Grant
    const { throttled, back } = await this.#report(held, feedback, job)
    if (throttled !== 1 || !back) throw new Error(`job ${number} is not back: ${throttled}`)
    const heard = this.#fleet.heard.findLast(({ by }) => by === held.token + held.id)
    this.#fleet.lost.push({ number, grant, started: true, foundUs: heard?.atUs as number })
    return 0
  }

  /** As in src/feedback/ok-reports.ts, in virtual time. */
  #wentWell(held: HeldJob): void {
    const shape = this.#store.memory.stored
    this.#oks += 1
    const { pace, pauses, doubt } = shape?.feedback ?? {}
    const everyMs = doubt || pauses ? 100 : pace && Math.max(100, pace.quietMs / 20)
    const due = everyMs !== undefined && this.#fleet.time.nowUs - this.#toldUs >= everyMs * 1000
    if (!this.#fleet.answers || (!due && !shape?.isProbing)) return
    this.#toldUs = this.#fleet.time.nowUs
    const ok: Feedback = { kind: 'ok', scope: 'queue', source: 'status', reason: 'test' }
    this.#report(held, ok).catch((error: unknown) => this.#fails(error))
  }

  #report(held: HeldJob, feedback: Feedback, job?: RefusedJob): Promise<FeedbackReply> {
    const { adapt } = this.#fleet.answers as Answers
    const request = encodeFeedbackRequest({
      ...{ found: [{ feedback }], sentUs: held.slotUs, by: held.token + held.id, adapt, oks: this.#oks },
      ...{ okUs: held.slotUs, okAgoMs: 0, ...(job && { job }) },
    })
    this.#oks = 0
    return applyFeedback(this.#store, JSON.stringify({ ...JSON.parse(request), jitter: 0 }))
  }
}
