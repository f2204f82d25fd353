// admission/: the way into a queue: a job's options and terms, the add scripts and their replies; one job, many, flows,
// and once per key. It must not know how jobs leave.

import { QueueUnavailableError } from '../errors.ts'
import { Collector } from '../redis/collector.ts'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import { queueNameOf } from '../redis/keys.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type AddCall, type AddedJob, BULK_KIND, fitsBulk } from './add-call.ts'
import type { OnceCall } from './idempotency-key.ts'
import { hasDeadline } from './job-terms.ts'
import { checkLimitCosts } from './limit-costs.ts'
import { isLost, readEstimate, refusalOf } from './reply.ts'

const BULK_KEYS = [
  'wait',
  'paused',
  'meta',
  'id',
  'completed',
  'delayed',
  'active',
  'events',
  'marker',
  'prioritized',
  'pc',
]

/** At most this many jobs, and bytes of them, per script: more would block Redis for other clients too long. */
export const BULK_JOBS = 200
const BULK_BYTES = 1024 * 1024
const CLAIM_LEASE_MS = 10_000

/** How `lua/admit-bulk.lua` takes its jobs: all or none, each by itself, or as a part whose places are claimed. */
const WHOLE = '0'
const EACH = '1'
const PART = '2'
type BulkKind = typeof WHOLE | typeof PART

/** Jobs added together are sent in this many parts, so that Redis works on one while the program prepares the next. */
const IN_FLIGHT = 4
/** Below this, one script costs Redis more than a script for each job. */
const MIN_BATCH = 4

const MAX_RESTORES = 3

/** What the caller requests besides the admission, in the codes of `lua/admit.lua`. */
const ASKS = { nothing: 0, estimate: 1, deadline: 2, deadlineAndEstimate: 3, position: 4 } as const

/** Splices our key and arguments into those of an add script. */
function admitArguments(call: AddCall, keys: number, store: ShapeStore): Argument[] {
  const { cost, id, deduplicationId, schedulerId, terms } = call.job
  const job = JSON.stringify([cost, id, deduplicationId, schedulerId ?? '', terms, askOf(call.job)])
  return [...call.args.slice(0, keys), store.key, ...call.args.slice(keys), store.memory.identityText, job]
}

function askOf({ estimate, position, terms }: AddedJob): number {
  if (hasDeadline(terms)) return estimate || position ? ASKS.deadlineAndEstimate : ASKS.deadline
  if (estimate) return ASKS.estimate
  return position ? ASKS.position : ASKS.nothing
}

/** One job of a bulk. */
function pushJob(to: Argument[], { script, args, job }: AddCall): void {
  const { length } = args
  to.push(BULK_KIND[script], args[length - 3], args[length - 2], args[length - 1])
  to.push(job.id, job.deduplicationId, job.cost, job.terms)
}

/** Cuts a bulk into parts of one script each, in order. A job larger than a part is one by itself. */
function partsOf(calls: readonly AddCall[]): AddCall[][] {
  const parts: AddCall[][] = []
  let part: AddCall[] = []
  let bytes = 0
  for (const call of calls) {
    const more = bytesOf(call)
    if (part.length > 0 && (part.length === BULK_JOBS || bytes + more > BULK_BYTES)) {
      parts.push(part)
      part = []
      bytes = 0
    }
    part.push(call)
    bytes += more
  }
  parts.push(part)
  return parts
}

/** Size of the job in BullMQ's add script: its own arguments, the data and the options. */
function bytesOf({ args }: AddCall): number {
  return args.slice(-3).reduce<number>((sum, argument) => sum + Buffer.byteLength(argument as string | Buffer), 0)
}

/** BullMQ's reply follows the position; an error code comes alone. */
function placed(raw: unknown, job: AddedJob): unknown {
  if (typeof raw !== 'string') return raw
  const at = raw.indexOf(' ')
  if (at > 0) job.position?.(Number(raw.slice(0, at)))
  return raw.slice(at + 1)
}

/** @param waiting number of waiting jobs once all were added, in order */
function tellPositions(calls: readonly AddCall[], replies: readonly unknown[], waiting: number): void {
  let position = waiting
  for (const [i, { script, job }] of [...calls.entries()].reverse()) {
    if (script !== 'addStandardJob' || typeof replies[i] !== 'string') continue
    position -= 1
    if (position >= 0) job.position?.(position)
  }
}

/** Repeats a call after restoring what Redis had lost; `storeOf` returns the store of the queue concerned. */
export async function withRestore(
  storeOf: (raw: readonly unknown[]) => ShapeStore,
  run: () => Promise<readonly unknown[]>,
): Promise<readonly unknown[]> {
  for (let attempt = 0; ; attempt++) {
    const raw = await run()
    if (!isLost(raw)) return raw
    const store = storeOf(raw)
    if (attempt === MAX_RESTORES) {
      throw new QueueUnavailableError(
        queueNameOf(store.base),
        `its shape was lost ${attempt + 1} times in a row`,
        false,
      )
    }
    await store.restore()
  }
}

/** Admits jobs to one queue, singly or in bulk. */
export class Admission {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #queueName: string

  constructor(scripts: ScriptSet, store: ShapeStore, queueName: string) {
    this.#scripts = scripts
    this.#store = store
    this.#queueName = queueName
  }

  /**
   * A unique id for a job without one, if a resent command must not add it twice: BullMQ's numeric ids cannot ensure
   * that.
   */
  idFor(jobId: string | undefined): string | undefined {
    if (jobId) return jobId
    return this.#store.memory.stored?.number('capacity') === undefined ? jobId : uniqueId()
  }

  /** @returns BullMQ's own reply: the id, or its negative code */
  async one(client: Client, call: AddCall, keys: number): Promise<unknown> {
    checkLimitCosts(this.#store.memory.stored, call.job)
    const command = this.#scripts.command(call.script)
    const run = () => runScript<readonly unknown[]>(client, command, admitArguments(call, keys, this.#store))
    const first = await run()
    const raw = isLost(first) ? await withRestore(() => this.#store, run) : first
    // If there was nothing to decide, the reply is BullMQ's own.
    if (!Array.isArray(raw)) return askOf(call.job) === ASKS.position ? placed(raw, call.job) : raw
    this.#store.memory.learn(raw[8])
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    const estimate = readEstimate(raw)
    call.job.estimate?.(estimate)
    if (estimate.position !== undefined) call.job.position?.(estimate.position)
    return raw[2]
  }

  /** Each job by itself, many in one script. @returns for each job BullMQ's reply, or why it was not added */
  async each(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    // All are sent before the first reply: Redis runs them in order, with other clients' commands in between.
    const parts = partsOf(calls).map((part) =>
      this.#eachOf(client, part, toKey).catch((error: unknown) => part.map(() => error)),
    )
    return (await Promise.all(parts)).flat()
  }

  async #eachOf(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    const raw = await this.#runBulk(client, calls, BULK_KEYS.map(toKey), ['', CLAIM_LEASE_MS, EACH, ''])
    const replies = raw[2] as unknown[]
    tellPositions(calls, replies, Number(raw[6]))
    return replies.map((reply) => {
      if (!Array.isArray(reply)) return reply
      return refusalOf(reply, this.#queueName) ?? new Error(String(reply[1]))
    })
  }

  /** All jobs or none. @returns BullMQ's replies, in order */
  async bulk(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    const keys = BULK_KEYS.map(toKey)
    const once = calls[0]?.job.once
    if (once) return this.#once(client, calls, keys, once)
    const parts = partsOf(calls)
    if (parts.length === 1) return this.#bulkPart(client, calls, keys, { claim: '' })
    const claim = uniqueId()
    // Without places to claim, the parts are still one bulk.
    if (!(await this.#claim(claim, calls))) return this.#bulkParts(client, parts, keys, '')
    try {
      return await this.#bulkParts(client, parts, keys, claim)
    } finally {
      await this.#store.run('claim-places', ['', '', claim, 'release', CLAIM_LEASE_MS])
    }
  }

  async #bulkParts(
    client: Client,
    parts: readonly (readonly AddCall[])[],
    keys: readonly string[],
    claim: string,
  ): Promise<unknown[]> {
    const replies: unknown[] = []
    for (const part of parts) replies.push(...(await this.#bulkPart(client, part, keys, { claim, kind: PART })))
    return replies
  }

  async #bulkPart(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    { claim, kind = WHOLE }: { claim: string; kind?: BulkKind },
  ): Promise<unknown[]> {
    this.#checkLimits(calls)
    const raw = await this.#runBulk(client, calls, keys, [claim, CLAIM_LEASE_MS, kind, ''])
    return raw[2] as unknown[]
  }

  /** Jobs that cannot be added now are looked up anyway: an earlier call may have added them. */
  async #once(client: Client, calls: readonly AddCall[], keys: readonly string[], once: OnceCall): Promise<unknown[]> {
    const { record, mark, call, ttlMs, stem } = once
    const refusal = once.refusal ?? this.#limitRefusal(calls)
    const key = JSON.stringify([record, mark, call, String(ttlMs), calls.length, ...(stem ? [stem] : [])])
    const raw = await this.#runBulk(client, refusal ? [] : calls, keys, ['', CLAIM_LEASE_MS, WHOLE, key])
    const found = raw[2] as string | unknown[]
    if (refusal && Array.isArray(found)) throw refusal
    once.answer({ replayed: raw[8] === '1', estimate: readEstimate(raw, 6) })
    if (Array.isArray(found)) return found
    return found === '' ? calls.map(({ job }) => job.id) : JSON.parse(found)
  }

  #checkLimits(calls: readonly AddCall[]): void {
    for (const { job } of calls) checkLimitCosts(this.#store.memory.stored, job)
  }

  #limitRefusal(calls: readonly AddCall[]): Error | undefined {
    try {
      this.#checkLimits(calls)
      return undefined
    } catch (error) {
      return error as Error
    }
  }

  /** @param terms the arguments between the shape's identity and the jobs */
  async #runBulk(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    terms: readonly Argument[],
  ): Promise<readonly unknown[]> {
    const command = this.#scripts.command('admit-bulk')
    const raw = await withRestore(
      () => this.#store,
      () => {
        const args = [...keys, this.#store.key, ...this.#store.memory.identity, ...terms]
        for (const call of calls) pushJob(args, call)
        return runScript(client, command, args)
      },
    )
    this.#store.memory.learn(raw[5] as string[] | null)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw
  }

  /** @returns whether places were claimed, which requires a capacity */
  async #claim(claim: string, calls: readonly AddCall[]): Promise<boolean> {
    const jobs = calls.flatMap(({ job }) => [job.id, job.deduplicationId, job.cost, job.terms])
    const raw = await withRestore(
      () => this.#store,
      () => {
        const args = [...this.#store.memory.identity, claim, 'claim', CLAIM_LEASE_MS, ...jobs]
        return this.#store.run('claim-places', args) as Promise<unknown[]>
      },
    )
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw[2] === 1
  }
}

interface Addition {
  readonly client: Client
  readonly call: AddCall
}

/** The two ways to add jobs. */
export interface Admitting {
  one(client: Client, call: AddCall): Promise<unknown>
  /** Each by itself, in one script. @returns for each job BullMQ's reply, or why it was not added */
  each(client: Client, calls: readonly AddCall[]): Promise<readonly unknown[]>
}

/**
 * Sends jobs that a program adds concurrently in one script: those added in one turn of the event loop while others are
 * in flight.
 */
export class AdmitBatch {
  readonly #collector: Collector<Addition, unknown>

  constructor(admitting: Admitting) {
    this.#collector = new Collector({
      one: ({ client, call }) => admitting.one(client, call),
      many: (additions) =>
        admitting.each(
          (additions[0] as Addition).client,
          additions.map(({ call }) => call),
        ),
      // Requests that arrive together are handled in turns of their own, so their jobs are added in different turns.
      defer: setImmediate,
      least: MIN_BATCH,
      enough: (jobs) => Math.min(BULK_JOBS, Math.max(MIN_BATCH, Math.ceil(jobs / IN_FLIGHT))),
    })
  }

  add(call: AddCall, client: Client): Promise<unknown> {
    const collects = this.#collector.underWay > 0 && fitsBulk(call)
    return collects ? this.#collector.add({ client, call }) : this.#collector.alone({ client, call })
  }

  /** Sends what is collected now, because a call follows that must come after it. */
  flush(): void {
    this.#collector.flush()
  }
}
