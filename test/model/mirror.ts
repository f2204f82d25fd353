import { decodeRate, type RateSchedule } from '../../src/limits/schedule.ts'
import { type BucketFields, ReferenceBucket, type ReferenceGrant } from '../../src/testing/index.ts'
import type { Job, MeterState, ModelFields, Operation, Outcome, OverrideChanges } from './replay.ts'

interface Override {
  readonly value: unknown
  readonly untilMs: number
}

class ModelBucket extends ReferenceBucket {
  /** The longest horizon of a history, as in replay.lua. */
  protected override readonly aheadUs = 2_000_000
}

/** A queue in memory: the jobs in order, the shape as stored, and the reference bucket. */
export class Mirror {
  #declared: ModelFields | undefined
  readonly #overrides = new Map<string, Override>()
  #bucket: ReferenceBucket | undefined
  #run = ''
  #waiting: Job[] = []
  #granted: { grant: ReferenceGrant; jobs: Job[] }[] = []

  /** The replaying script remembers grants for the length of one call. */
  beginCall(): void {
    this.#granted = []
  }

  /** The expected outcome of the operation. */
  apply(operation: Operation): Outcome {
    const { now, run } = operation
    this.#bucket?.advance(now - this.#bucket.nowUs)
    if (run !== this.#run) this.#bucket?.restart()
    this.#run = run
    if (operation.what !== 'giveBack' && operation.what !== 'loseMeter') {
      this.#endOverrides(now)
    }
    const reply = this.#do(operation)
    const state = this.#bucket?.state
    return { reply, meter: state && meterState(state) }
  }

  #do(operation: Operation): unknown {
    const { now } = operation
    switch (operation.what) {
      case 'declare':
        return this.#declare(operation.fields, now)
      case 'override':
        return this.#override(operation.changes, operation.ttlMs, now)
      case 'pause':
        return this.#pause(operation.kind, operation.ms, now)
      case 'depart':
        return this.#depart(operation.jobs, operation.asked, operation.horizonUs)
      case 'giveBack':
        return this.#giveBack(operation.count, operation.ago, now)
      case 'read':
        return this.#read()
      default:
        return this.#lose(operation.what)
    }
  }

  #declare(fields: ModelFields, now: number): number {
    this.#declared = fields
    if (this.#bucket) this.#bucket.reshape(this.#effective())
    else this.#bucket = new ModelBucket(this.#effective(), now)
    return 1
  }

  #override(changes: OverrideChanges, ttlMs: number | undefined, now: number): number {
    const nowMs = Math.floor(now / 1000)
    for (const [field, value] of Object.entries(changes)) {
      if (typeof value === 'object' && 'clear' in value) this.#overrides.delete(field)
      else this.#overrides.set(field, { value, untilMs: ttlMs ? nowMs + ttlMs : Number.POSITIVE_INFINITY })
    }
    this.#dropEnded(nowMs)
    this.#bucketNow.reshape(this.#effective())
    return 1
  }

  #pause(kind: 'until' | 'for' | 'clear', ms: number, now: number): number {
    if (kind === 'clear') this.#bucketNow.clearPause()
    else this.#bucketNow.pauseUntil(ms * 1000 + (kind === 'for' ? now : 0))
    return 1
  }

  #depart(added: readonly Job[], asked: number, horizonUs: number): unknown {
    this.#waiting.push(...added)
    const costs = this.#waiting.slice(0, asked).map(({ cost }) => cost)
    const grant = this.#bucketNow.grant(costs, horizonUs)
    const count = grant.slotsUs.length
    const jobs = this.#waiting.splice(0, count)
    if (count > 0) this.#granted.push({ grant, jobs })
    const grants = jobs.map(({ id }, i) => [id, String(grant.slotsUs[i])])
    if (count === asked) return [grants, 'full', '']
    const [head] = this.#waiting
    return head ? [grants, 'closed', String(this.#bucketNow.nextSlotUs(head.cost))] : [grants, 'empty', '']
  }

  #giveBack(count: number, ago: number, now: number): number {
    const granted = this.#granted.at(-1 - ago)
    if (!granted || count === 0 || count > granted.jobs.length) return 0
    this.#endOverrides(now)
    const { grant, jobs } = granted
    const left = jobs.length - count
    this.#waiting.unshift(...jobs.splice(left))
    const refunded = this.#bucketNow.refund(grant, count)
    if (!refunded) this.#bucketNow.takeBack(grant, count)
    const { slotsUs, costs } = grant
    granted.grant = refunded ?? { ...grant, slotsUs: slotsUs.slice(0, left), costs: costs.slice(0, left) }
    return refunded ? 1 : 0
  }

  #read(): unknown {
    const bucket = this.#bucketNow
    return [bucket.level, bucket.nextSlotUs(this.#waiting[0]?.cost ?? 1)]
  }

  #lose(what: 'loseMeter' | 'loseAll'): number {
    this.#granted = []
    const known = this.#bucketNow.state !== undefined
    if (what === 'loseAll') this.#bucketNow.restore()
    else this.#bucketNow.loseState()
    return what === 'loseAll' || known ? 1 : 0
  }

  get #bucketNow(): ReferenceBucket {
    return this.#bucket as ReferenceBucket
  }

  // No event marks the end of an override: the next operation applies it as of its end.
  #endOverrides(now: number): void {
    for (;;) {
      const endMs = Math.min(...[...this.#overrides.values()].map(({ untilMs }) => untilMs))
      if (endMs * 1000 > now) return
      this.#dropEnded(endMs)
      this.#bucketNow.reshape(this.#effective(), endMs * 1000)
    }
  }

  #dropEnded(nowMs: number): void {
    for (const [field, { untilMs }] of this.#overrides) if (untilMs <= nowMs) this.#overrides.delete(field)
  }

  #effective(): BucketFields {
    const overrides = Object.fromEntries([...this.#overrides].map(([field, { value }]) => [field, value]))
    const { rate, ...fields } = { ...this.#declared, ...overrides } as ModelFields
    const [limit, period] = rate
    return { ...fields, rate: rate.length === 2 ? { limit, period } : (decodeRate(rate) as RateSchedule) }
  }
}

function meterState({ tat, last, intervalUs, burst, mode, horizonUs }: MeterState): MeterState {
  return { tat, last, intervalUs, burst, mode, horizonUs }
}
