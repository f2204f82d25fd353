// admission/: how jobs enter a queue: their options and terms, the add scripts and their replies, for single jobs,
// bulks, flows and idempotent calls. It must not know how jobs leave.

import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import { MayHaveRun, untilCertain } from '../redis/resends.ts'
import { FITTING, type ScriptSet } from '../redis/scripts.ts'
import { ShortTries } from '../redis/short-tries.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type AddCall, type AddedJob, BULK_KIND, noteAnswer } from './add-call.ts'
import { BOUND_BY_GROUPS, BulkClaims, CLAIM_LEASE_MS, CLAIMED } from './bulk-claims.ts'
import { addedIdsOf, bytesOf, IN_FLIGHT, partsOf } from './bulk-parts.ts'
import type { OnceCall } from './idempotency-key.ts'
import { hasDeadline } from './job-terms.ts'
import { checkLimitCosts } from './limit-costs.ts'
import { isLost, readEstimate, refusalOf } from './reply.ts'
import { withRestore } from './restore.ts'

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

/** A call with more data has it sent once, to the full script: sending it twice costs more than the short one saves. */
const LARGE_BYTES = 64 * 1024
/** How `lua/verbs/admit-bulk.lua` takes its jobs: all or none, each by itself, or as a part whose places are claimed. */
const WHOLE = '0'
const EACH = '1'
const PART = '2'
type BulkKind = typeof WHOLE | typeof PART

/**
 * Splices our key and arguments into those of an add script.
 * @param sentUs when it was first sent, if it may have run then
 */
function admitArguments(call: AddCall, keys: number, store: ShapeStore, sentUs?: number): Argument[] {
  const { cost, id, hasNewId, deduplicationId, schedulerId, terms, group, estimate, position } = call.job
  const estimates = estimate || position ? 1 : 0
  const again = sentUs !== undefined && hasNewId && id !== '' ? [group ?? false, sentUs] : undefined
  const job = JSON.stringify([
    cost,
    id,
    deduplicationId,
    schedulerId ?? '',
    terms,
    estimates,
    ...(again ?? (group ? [group] : [])),
  ])
  return [...call.args.slice(0, keys), store.key, ...call.args.slice(keys), store.memory.identityText, job]
}

/** The arguments of the short script, which adds jobs that certainly fit. Each costs time here and in Redis. */
function fittingArguments({ args, job }: AddCall, store: ShapeStore): Argument[] {
  const { length } = args
  const short = [store.key, args[length - 3], args[length - 2], args[length - 1], store.memory.stored?.fits ?? '']
  if (job.position) short.push(job.cost, '1')
  else if (job.cost !== 1) short.push(job.cost)
  return short
}

/** Whether the jobs of a bulk are all new or, if the call was resent, were all added by it before. */
function areNewOrNone(calls: readonly AddCall[]): boolean {
  return calls.length > 0 && calls.every(({ job }) => job.hasNewId && job.deduplicationId === '')
}

/** What lua/verbs/admit-bulk.lua gets to know of the ids of its jobs. @param sentUs as above */
function idsMade(calls: readonly AddCall[], sentUs?: number): string {
  if (sentUs === undefined) return areNewOrNone(calls) ? '1' : ''
  return JSON.stringify([sentUs, calls.filter(({ job }) => job.hasNewId && job.id !== '').map(({ job }) => job.id)])
}

/** Appends one job of a bulk. */
function pushJob(to: Argument[], { script, args, job }: AddCall): void {
  const { length } = args
  to.push(BULK_KIND[script], args[length - 3], args[length - 2], args[length - 1])
  to.push(job.id, job.deduplicationId, job.cost, job.terms, job.group ? JSON.stringify(job.group) : '')
}

/** @throws the first error among the replies */
function allAdded(replies: unknown[]): unknown[] {
  const failed = replies.find((reply) => reply instanceof Error)
  if (failed) throw failed
  return replies
}

/** A short script returns the text of an error in an array. */
function errorOrReply(reply: unknown): unknown {
  return Array.isArray(reply) ? new Error(String(reply[0])) : reply
}

/** BullMQ's reply follows the position; an error code comes alone. */
function placed(raw: unknown, job: AddedJob): unknown {
  if (typeof raw !== 'string') return raw
  const at = raw.indexOf(' ')
  if (at > 0) job.position?.(Number(raw.slice(0, at)))
  return raw.slice(at + 1)
}

/** @param waiting number of waiting jobs after all of these were added, in order */
function tellPositions(calls: readonly AddCall[], replies: readonly unknown[], waiting: number): void {
  let position = waiting
  for (const [i, { script, job }] of [...calls.entries()].reverse()) {
    if (script !== 'addStandardJob' || job.group || typeof replies[i] !== 'string') continue
    position -= 1
    if (position >= 0) job.position?.(position)
  }
}

/** Admits jobs to one queue, singly or in bulk. */
export class Admission {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #queueName: string
  readonly #claims: BulkClaims
  readonly #fitting = new ShortTries()
  readonly #fittingInGroups = new ShortTries()

  constructor(scripts: ScriptSet, store: ShapeStore, queueName: string) {
    this.#scripts = scripts
    this.#store = store
    this.#queueName = queueName
    this.#claims = new BulkClaims(store, queueName)
  }

  /**
   * A unique id for a job without one, if a resent command must not add it twice: BullMQ's numeric ids cannot ensure
   * that.
   */
  idFor(jobId: string | undefined): string | undefined {
    if (jobId) return jobId
    return this.#store.memory.stored ? uniqueId() : jobId
  }

  /**
   * Not an async function, as each promise of a lone add is time that its caller waits.
   * @returns BullMQ's own reply: the id, or its negative code
   */
  one(client: Client, call: AddCall, keys: number): Promise<unknown> {
    const refusal = this.#limitRefusal([call])
    if (refusal) return Promise.reject(refusal)
    if (!this.#mayFit([call])) return this.#decided(client, call, keys)
    const command = this.#scripts.command(FITTING[call.script] as string)
    const args = fittingArguments(call, this.#store)
    return runScript<string | number | null | MayHaveRun, unknown>(client, command, args, (reply) => {
      if (reply instanceof MayHaveRun) return this.#decided(client, call, keys, reply)
      if (!this.#fitting.served(reply)) return this.#decided(client, call, keys)
      return call.job.position ? placed(reply, call.job) : reply
    })
  }

  /** @param lost of the short script */
  async #decided(client: Client, call: AddCall, keys: number, lost?: MayHaveRun): Promise<unknown> {
    const command = this.#scripts.command(call.script)
    const send = (sentUs?: number) =>
      runScript<readonly unknown[]>(client, command, admitArguments(call, keys, this.#store, sentUs))
    const run = untilCertain(send, lost)
    const first = await run()
    const raw = isLost(first) ? await withRestore(() => this.#store, run) : first
    this.#store.memory.learn(raw[8] as readonly string[] | null)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    const estimate = readEstimate(raw)
    call.job.estimate?.(estimate)
    if (estimate.position !== undefined) call.job.position?.(estimate.position)
    return raw[2]
  }

  /** Each job by itself, many in one script. @returns for each job BullMQ's reply, or why it was not added */
  async each(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    const refusals = calls.map((call) => this.#limitRefusal([call]))
    const sent = calls.filter((_, i) => !refusals[i])
    if (sent.length === 0) return refusals
    // All are sent before the first reply: Redis runs them in order, with other clients' commands in between.
    const parts = partsOf(sent).map((part) =>
      this.#eachOf(client, part, toKey).catch((error: unknown) => part.map(() => error)),
    )
    const replies = (await Promise.all(parts)).flat()
    return refusals.map((refusal) => refusal ?? replies.shift())
  }

  async #eachOf(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    const keys = BULK_KEYS.map(toKey)
    const added = await this.#addShort(client, calls, keys)
    if (Array.isArray(added)) return added
    const raw = await this.#runBulk(client, calls, keys, ['', CLAIM_LEASE_MS, EACH, ''], added)
    const replies = raw[2] as unknown[]
    tellPositions(calls, replies, Number(raw[6]))
    return replies.map((reply) => {
      if (!Array.isArray(reply)) return reply
      return refusalOf(reply, this.#queueName) ?? new Error(String(reply[1]))
    })
  }

  /**
   * All jobs or none.
   * @param refusal why none can be added; jobs of an idempotency key are looked up all the same
   * @returns BullMQ's replies, in order
   */
  async bulk(
    client: Client,
    calls: readonly AddCall[],
    toKey: (type: string) => string,
    refusal?: Error,
  ): Promise<unknown[]> {
    const keys = BULK_KEYS.map(toKey)
    const once = calls[0]?.job.once
    if (once) return this.#once(client, calls, keys, refusal ? { ...once, refusal: once.refusal ?? refusal } : once)
    if (refusal) throw refusal
    const parts = partsOf(calls)
    if (parts.length === 1 || this.#dependsOnGroups(calls)) return this.#wholeBulk(client, calls, keys)
    // Before any part is sent: none is taken back.
    this.#checkLimits(calls)
    const claim = uniqueId()
    const claimed = await this.#claims.take(claim, calls)
    if (claimed === BOUND_BY_GROUPS) return this.#wholeBulk(client, calls, keys)
    // Without places to claim, the parts are still one bulk.
    if (claimed !== CLAIMED) return this.#bulkParts(client, parts, keys, '')
    try {
      return await this.#bulkParts(client, parts, keys, claim)
    } finally {
      // Ignore failures here: unreleased places free themselves when the claim's lease expires.
      await this.#claims.release(claim).catch(() => {})
    }
  }

  /** Places and turns of groups cannot be claimed. */
  #dependsOnGroups(calls: readonly AddCall[]): boolean {
    const { stored } = this.#store.memory
    if (!stored?.hasGroups) return false
    return calls.some(({ job }) => hasDeadline(job.terms) || (job.group && stored.boundsGroups))
  }

  async #wholeBulk(client: Client, calls: readonly AddCall[], keys: readonly string[]): Promise<unknown[]> {
    this.#checkLimits(calls)
    const added = await this.#addShort(client, calls, keys)
    return Array.isArray(added) ? allAdded(added) : this.#bulkPart(client, calls, keys, { claim: '', lost: added })
  }

  /** Some parts are sent before the first is answered, in order. */
  async #bulkParts(
    client: Client,
    parts: readonly (readonly AddCall[])[],
    keys: readonly string[],
    claim: string,
  ): Promise<unknown[]> {
    const sent: Promise<unknown[]>[] = []
    try {
      for (const [i, part] of parts.entries()) {
        if (i >= IN_FLIGHT) await sent[i - IN_FLIGHT]
        const added = this.#bulkPart(client, part, keys, { claim, kind: PART })
        // It may fail while another one is awaited.
        added.catch(() => {})
        sent.push(added)
      }
      return (await Promise.all(sent)).flat()
    } catch (error) {
      // What is in flight must end before its claim does.
      const ends = await Promise.allSettled(sent)
      throw Object.assign(error as Error, { addedIds: addedIdsOf(parts, ends) })
    }
  }

  async #bulkPart(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    { claim, kind = WHOLE, lost }: { claim: string; kind?: BulkKind; lost?: MayHaveRun | undefined },
  ): Promise<unknown[]> {
    const added = claim === '' ? lost : await this.#addShort(client, calls, keys, claim)
    if (Array.isArray(added)) return allAdded(added)
    const raw = await this.#runBulk(client, calls, keys, [claim, CLAIM_LEASE_MS, kind, ''], added)
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

  /** Whether only the number of free places decides, as far as this process knows. */
  #mayFit(calls: readonly AddCall[]): boolean {
    const { stored } = this.#store.memory
    if (stored && stored.fits === undefined) return false
    let bytes = 0
    for (const call of calls) {
      const { script, job } = call
      if (!(script in FITTING) || job.estimate || job.group || hasDeadline(job.terms)) return false
      bytes += bytesOf(call)
    }
    return bytes <= LARGE_BYTES && this.#fitting.take()
  }

  /** As #mayFit, of jobs of groups. */
  #mayFitInGroups(calls: readonly AddCall[]): boolean {
    const { stored } = this.#store.memory
    if (!stored?.hasGroups || stored.boundsGroups || stored.ages || stored.mode !== 'enforce') return false
    let bytes = 0
    for (const call of calls) {
      const { job } = call
      const isPlain = call.script === 'addStandardJob' && job.group?.[1] === 0 && job.terms === ''
      if (!isPlain || job.estimate || job.deduplicationId !== '') return false
      bytes += bytesOf(call)
    }
    return bytes <= LARGE_BYTES && this.#fittingInGroups.take()
  }

  /**
   * Tries the short script for these jobs, if there is one.
   * @returns for each job BullMQ's reply, or why it failed; undefined if some might not fit: then none was added
   */
  async #addShort(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    claim = '',
  ): Promise<unknown[] | MayHaveRun | undefined> {
    if (claim !== '' && !areNewOrNone(calls)) return undefined
    const highestCost = calls.reduce((highest, { job }) => Math.max(highest, job.cost), 0)
    const places = claim === '' ? '' : `${claim} ${CLAIM_LEASE_MS} ${calls[0]?.job.id}`
    const terms = [highestCost, places]
    if (this.#mayFit(calls)) return this.#addFitting(client, calls, keys, terms)
    if (this.#mayFitInGroups(calls)) return this.#addFittingInGroups(client, calls, keys, terms)
    return undefined
  }

  async #addFittingInGroups(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    terms: readonly Argument[],
  ): Promise<unknown[] | MayHaveRun | undefined> {
    const args: Argument[] = [...keys, this.#store.key, this.#store.memory.identityText, ...terms]
    for (const { args: theirs, job } of calls) {
      const { length } = theirs
      args.push(theirs[length - 3], theirs[length - 2], theirs[length - 1], job.group?.[0])
    }
    const command = this.#scripts.command('admit-bulk-groups')
    const raw = await runScript<unknown[] | MayHaveRun | null>(client, command, args)
    if (raw instanceof MayHaveRun) return raw
    if (!this.#fittingInGroups.served(raw)) return undefined
    noteAnswer(calls)
    return (raw as unknown[]).map(errorOrReply)
  }

  async #addFitting(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    terms: readonly Argument[],
  ): Promise<unknown[] | MayHaveRun | undefined> {
    const args: Argument[] = [...keys, this.#store.key, this.#store.memory.stored?.fits ?? '', ...terms]
    for (const { script, args: theirs } of calls) args.push(BULK_KIND[script], ...theirs.slice(-3))
    const command = this.#scripts.command('admit-bulk-fitting')
    const raw = await runScript<[number, unknown[]] | MayHaveRun | null>(client, command, args)
    if (raw instanceof MayHaveRun) return raw
    if (!this.#fitting.served(raw)) return undefined
    noteAnswer(calls)
    const [waiting, replies] = raw as [number, unknown[]]
    tellPositions(calls, replies, waiting)
    return replies.map(errorOrReply)
  }

  /**
   * @param terms the arguments between the shape's identity and the jobs
   * @param lost of a short script with the same jobs
   */
  async #runBulk(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    terms: readonly Argument[],
    lost?: MayHaveRun,
  ): Promise<readonly unknown[]> {
    const command = this.#scripts.command('admit-bulk')
    const send = (sentUs?: number): Promise<readonly unknown[] | MayHaveRun> => {
      const args = [...keys, this.#store.key, ...this.#store.memory.identity, ...terms, idsMade(calls, sentUs)]
      for (const call of calls) pushJob(args, call)
      return runScript(client, command, args)
    }
    const raw = await withRestore(() => this.#store, untilCertain(send, lost))
    this.#store.memory.learn(raw[5] as string[] | null)
    noteAnswer(calls)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw
  }
}
