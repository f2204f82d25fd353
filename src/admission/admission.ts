import { Collector } from '../redis/collector.ts'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import { MayHaveRun, untilCertain } from '../redis/resends.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type AddCall, describeJob, fitsBulk, hasDeadline, isLast, noteAnswer } from './add-call.ts'
import { BOUND_BY_GROUPS, BulkClaims, CLAIM_LEASE_MS, CLAIMED } from './bulk-claims.ts'
import { addedIdsOf, BULK_JOBS, IN_FLIGHT, partsOf } from './bulk-parts.ts'
import type { OnceCall } from './idempotency-key.ts'
import { limitRefusal } from './limit-checks.ts'
import { isLost, readEstimate, refusalOf } from './reply.ts'
import { withRestore } from './restore.ts'

/** For fewer jobs, one script costs Redis more than a script for each job. */
const MIN_BATCH = 4
/** How `lua/verbs/add-bulk.lua` takes its jobs: all or none, each by itself, or as a part whose places are claimed. */
const WHOLE = '0'
const EACH = '1'
const PART = '2'
type BulkKind = typeof WHOLE | typeof EACH | typeof PART

/** The parameters of a bulk for `lua/verbs/add-bulk.lua`. */
interface BulkTerms {
  readonly kind: BulkKind
  /** '' if its places are not claimed. */
  readonly claim?: string
  /** The idempotency key, in the script's format. */
  readonly once?: string
}

type Raw = readonly unknown[]

interface Addition {
  readonly client: Client
  readonly call: AddCall
}

/** The text of a job for `lua/verbs/add.lua`. @param sentUs when it was first sent, if it may have run then */
function loneJob(call: AddCall, sentUs?: number): string {
  const { id, hasNewId, schedulerId, estimate, position } = call.job
  const again = sentUs !== undefined && hasNewId && id !== ''
  if (!(estimate || position || schedulerId || again)) return describeJob(call)
  const asked = estimate ? 'start' : position ? 'position' : ''
  return JSON.stringify([describeJob(call), asked, schedulerId ?? '', ...(again ? [sentUs] : [])])
}

/** The ids of the jobs for `lua/verbs/add-bulk.lua`. @param sentUs as above */
function idsMade(calls: readonly AddCall[], sentUs?: number): string {
  const made = calls.filter(({ job }) => job.hasNewId && job.id !== '')
  if (sentUs !== undefined) return JSON.stringify([sentUs, made.map(({ job }) => job.id)])
  return made.length > 0 && made.length === calls.length ? '1' : ''
}

/** Without further results, the reply is BullMQ's alone. */
function answerOf(reply: unknown): Raw {
  return Array.isArray(reply) ? reply : [1, [], reply]
}

/** @param waiting number of waiting jobs after all of these were added, in order */
function reportPositions(calls: readonly AddCall[], replies: readonly unknown[], waiting: number): void {
  let position = waiting
  for (const [i, call] of [...calls.entries()].reverse()) {
    if (!isLast(call) || typeof replies[i] !== 'string') continue
    position -= 1
    if (position >= 0) call.job.position?.(position)
  }
}

/**
 * Admits jobs to one queue, singly or in bulk. Jobs that are added one by one while others are in flight are collected
 * during one turn of the event loop, and sent together.
 */
export class Admission {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #queueName: string
  readonly #claims: BulkClaims
  readonly #collector: Collector<Addition, unknown>

  constructor(scripts: ScriptSet, store: ShapeStore, queueName: string) {
    this.#scripts = scripts
    this.#store = store
    this.#queueName = queueName
    this.#claims = new BulkClaims(store, queueName)
    this.#collector = new Collector({
      one: ({ client, call }) => this.#one(client, call),
      many: (additions) =>
        this.#each(
          (additions[0] as Addition).client,
          additions.map(({ call }) => call),
        ),
      // HTTP requests that arrive together run in separate callbacks: setImmediate comes after all of them.
      defer: setImmediate,
      least: MIN_BATCH,
      enough: (jobs) => Math.min(BULK_JOBS, Math.max(MIN_BATCH, Math.ceil(jobs / IN_FLIGHT))),
    })
  }

  /** @returns BullMQ's own reply: the id, or its negative code */
  add(client: Client, call: AddCall): Promise<unknown> {
    // Without a shape everything is sent as BullMQ sends it.
    if (!this.#store.memory.stored) return this.#one(client, call)
    if (this.#collector.underWay > 0 && fitsBulk(call)) return this.#collector.add({ client, call })
    this.#collector.flush()
    return this.#collector.track(this.#one(client, call))
  }

  /** Sends the collected calls now, before a call that must come after them. */
  flush(): void {
    this.#collector.flush()
  }

  /** Not an async function: each promise of a lone add costs its caller time. */
  #one(client: Client, call: AddCall): Promise<unknown> {
    const refusal = limitRefusal(this.#store, [call.job])
    if (refusal) return this.#oneUnlessRefused(client, call, refusal)
    return this.#sendOne(client, call)
  }

  async #oneUnlessRefused(client: Client, call: AddCall, refusal: Error | Promise<Error | undefined>) {
    const refused = await refusal
    if (refused) throw refused
    return this.#sendOne(client, call)
  }

  #sendOne(client: Client, call: AddCall): Promise<unknown> {
    return this.#send(client, call, undefined, (reply) => {
      if (!(reply instanceof MayHaveRun || Array.isArray(reply))) return reply
      if (reply instanceof MayHaveRun || isLost(reply)) return this.#sendAgain(client, call, reply)
      return this.#added(call, reply)
    })
  }

  #send<R>(client: Client, call: AddCall, sentUs: number | undefined, read: (reply: unknown) => R | Promise<R>) {
    const { script, args } = call
    const own = [this.#store.key, this.#store.memory.identity, loneJob(call, sentUs)]
    const all = [...own, ...args.slice(this.#scripts.command(script).keys)]
    return runScript<unknown, R>(client, this.#scripts.command('add'), all, read)
  }

  /** @param reply of the first call, which may have run, or found that the shape is lost */
  async #sendAgain(client: Client, call: AddCall, reply: MayHaveRun | Raw): Promise<unknown> {
    const send = (sentUs?: number) =>
      this.#send(client, call, sentUs, (again) => (again instanceof MayHaveRun ? again : answerOf(again)))
    const run = untilCertain<Raw>(send, reply instanceof MayHaveRun ? reply : undefined)
    return this.#added(call, await withRestore(() => this.#store, run))
  }

  #added({ job }: AddCall, raw: Raw): unknown {
    this.#store.memory.learn(raw[5] as readonly string[] | null)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    const estimate = readEstimate(raw, 3)
    job.estimate?.(estimate)
    if (estimate.position !== undefined) job.position?.(estimate.position)
    return raw[2]
  }

  /** Each job by itself, many in one script. @returns for each job BullMQ's reply, or why it was not added */
  async #each(client: Client, calls: readonly AddCall[]): Promise<(unknown | Error)[]> {
    const found = calls.map(({ job }) => limitRefusal(this.#store, [job]))
    // Jobs keep the order of their calls: known values are not awaited.
    const refusals = found.some((one) => one instanceof Promise)
      ? await Promise.all(found)
      : (found as (Error | undefined)[])
    const sent = calls.filter((_, i) => !refusals[i])
    if (sent.length === 0) return refusals
    // All are sent before the first reply: Redis runs them in order, with other clients' commands in between.
    const parts = partsOf(sent).map((part) =>
      this.#eachOf(client, part).catch((error: unknown) => part.map(() => error)),
    )
    const replies = (await Promise.all(parts)).flat()
    return refusals.map((refusal) => refusal ?? replies.shift())
  }

  async #eachOf(client: Client, calls: readonly AddCall[]): Promise<unknown[]> {
    const raw = await this.#runBulk(client, calls, { kind: EACH })
    return (raw[2] as unknown[]).map((reply) => {
      if (!Array.isArray(reply)) return reply
      return refusalOf(reply, this.#queueName) ?? new Error(String(reply[1]))
    })
  }

  /**
   * All jobs or none.
   * @param refusal why none can be added; jobs of an idempotency key are looked up nevertheless
   * @returns BullMQ's replies, in order
   */
  async bulk(client: Client, calls: readonly AddCall[], refusal?: Error): Promise<unknown[]> {
    this.flush()
    const once = calls[0]?.job.once
    if (once) return this.#once(client, calls, refusal ? { ...once, refusal: once.refusal ?? refusal } : once)
    if (refusal) throw refusal
    // Before any part is sent: none is taken back.
    const costly = this.#limitRefusal(calls)
    const refused = costly && (await costly)
    if (refused) throw refused
    const parts = partsOf(calls)
    if (parts.length === 1 || this.#dependsOnGroups(calls)) return this.#addAll(client, calls, { kind: WHOLE })
    const claim = uniqueId()
    const claimed = await this.#claims.take(claim, calls)
    if (claimed === BOUND_BY_GROUPS) return this.#addAll(client, calls, { kind: WHOLE })
    // Without places to claim, the parts are still one bulk.
    if (claimed !== CLAIMED) return this.#bulkParts(client, parts, '')
    try {
      return await this.#bulkParts(client, parts, claim)
    } finally {
      // Ignore failures here: unreleased places free themselves when the claim's lease expires.
      await this.#claims.release(claim).catch(() => {})
    }
  }

  /** Places and turns of groups cannot be claimed. */
  #dependsOnGroups(calls: readonly AddCall[]): boolean {
    const { stored } = this.#store.memory
    if (!stored?.hasGroups) return false
    return calls.some(({ job }) => hasDeadline(job) || (job.group && stored.boundsGroups))
  }

  async #addAll(client: Client, calls: readonly AddCall[], terms: BulkTerms): Promise<unknown[]> {
    return (await this.#runBulk(client, calls, terms))[2] as unknown[]
  }

  /** Some parts are sent before the first is answered, in order. */
  async #bulkParts(client: Client, parts: readonly (readonly AddCall[])[], claim: string): Promise<unknown[]> {
    const sent: Promise<unknown[]>[] = []
    try {
      for (const [i, part] of parts.entries()) {
        if (i >= IN_FLIGHT) await sent[i - IN_FLIGHT]
        const added = this.#addAll(client, part, { kind: PART, claim })
        // It may fail while another one is awaited.
        added.catch(() => {})
        sent.push(added)
      }
      return (await Promise.all(sent)).flat()
    } catch (error) {
      // Calls in flight must end before their claim does.
      const ends = await Promise.allSettled(sent)
      throw Object.assign(error as Error, { addedIds: addedIdsOf(parts, ends) })
    }
  }

  /** Jobs that cannot be added now are looked up nevertheless: an earlier call may have added them. */
  async #once(client: Client, calls: readonly AddCall[], terms: OnceCall): Promise<unknown[]> {
    const { record, mark, call, ttlMs, stem } = terms
    const costly = terms.refusal ?? this.#limitRefusal(calls)
    const refusal = costly && (await costly)
    const once = JSON.stringify([record, mark, call, String(ttlMs), calls.length, ...(stem ? [stem] : [])])
    const raw = await this.#runBulk(client, refusal ? [] : calls, { kind: WHOLE, once })
    const found = raw[2] as string | unknown[]
    if (refusal && Array.isArray(found)) throw refusal
    terms.answer({ replayed: raw[6] === '1', estimate: readEstimate(raw, 4) })
    if (Array.isArray(found)) return found
    return found === '' ? calls.map(({ job }) => job.id) : JSON.parse(found)
  }

  #limitRefusal(calls: readonly AddCall[]) {
    return limitRefusal(
      this.#store,
      calls.map(({ job }) => job),
    )
  }

  async #runBulk(client: Client, calls: readonly AddCall[], { kind, claim = '', once = '' }: BulkTerms): Promise<Raw> {
    const command = this.#scripts.command('add-bulk')
    const send = (sentUs?: number): Promise<Raw | MayHaveRun> => {
      const { identity } = this.#store.memory
      const ids = idsMade(calls, sentUs)
      const args: Argument[] = [this.#store.key, identity, claim, CLAIM_LEASE_MS, kind, once, ids]
      for (const call of calls) {
        const { length } = call.args
        args.push(describeJob(call), call.args[length - 3], call.args[length - 2], call.args[length - 1])
      }
      return runScript(client, command, args)
    }
    const raw = await withRestore(() => this.#store, untilCertain(send))
    this.#store.memory.learn(raw[3] as string[] | null)
    noteAnswer(calls)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    if (once === '' && raw[4] !== '') reportPositions(calls, raw[2] as unknown[], Number(raw[4]))
    return raw
  }
}
