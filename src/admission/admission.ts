// admission/: how jobs enter a queue: their options and terms, the add scripts and their replies, for single jobs,
// bulks, flows and idempotent calls. It must not know how jobs leave.

import { QueueUnavailableError, SluiceError } from '../errors.ts'
import { Collector } from '../redis/collector.ts'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import { queueNameOf } from '../redis/keys.ts'
import { FITTING, type ScriptSet } from '../redis/scripts.ts'
import { ShortTries } from '../redis/short-tries.ts'
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

/** At most this many jobs, and bytes of them, are added by one script. */
export const BULK_JOBS = 200
const BULK_BYTES = 1024 * 1024
/** Jobs per script of a larger bulk: a part blocks Redis for less than 5 ms, in groups too. */
const PART_JOBS = 50
/** A call with more data has it sent once, to the full script: sending it twice costs more than the short one saves. */
const LARGE_BYTES = 64 * 1024
/** Jobs per script that looks for existing ones: it blocks Redis for about 3 ms. */
const FOUND_AT_ONCE = 400
const CLAIM_LEASE_MS = 10_000

/** How `lua/admit-bulk.lua` takes its jobs: all or none, each by itself, or as a part whose places are claimed. */
const WHOLE = '0'
const EACH = '1'
const PART = '2'
type BulkKind = typeof WHOLE | typeof PART

/** What `lua/claim-places.lua` returns of the places of a bulk. */
const CLAIMED = 1
const BOUND_BY_GROUPS = 2

/** Jobs added together are sent in this many parts, so that Redis works on one while the program prepares the next. */
const IN_FLIGHT = 4
/** For fewer jobs, one script costs Redis more than a script for each job. */
const MIN_BATCH = 4

const MAX_RESTORES = 3

/**
 * What became of the jobs of a bulk in parts, of which one failed: the id of each that was added, undefined for one that
 * was not, null if that is not known.
 */
function addedIdsOf(parts: readonly (readonly AddCall[])[], ends: readonly PromiseSettledResult<unknown[]>[]) {
  return parts.flatMap((part, i) => {
    const end = ends[i]
    if (end?.status === 'fulfilled') return end.value.map((reply) => (typeof reply === 'string' ? reply : undefined))
    const isRefused = !end || (end.reason instanceof SluiceError && !(end.reason instanceof QueueUnavailableError))
    return part.map(() => (isRefused ? undefined : null))
  })
}

/** Splices our key and arguments into those of an add script. */
function admitArguments(call: AddCall, keys: number, store: ShapeStore): Argument[] {
  const { cost, id, deduplicationId, schedulerId, terms, group, estimate, position } = call.job
  const estimates = estimate || position ? 1 : 0
  const job = JSON.stringify([
    cost,
    id,
    deduplicationId,
    schedulerId ?? '',
    terms,
    estimates,
    ...(group ? [group] : []),
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

/**
 * The jobs of a bulk in the format of `lua/claim-places.lua`: a run of like jobs is sent once, with the number of new
 * ones.
 */
function claimedJobs(calls: readonly AddCall[], isNew: (call: AddCall) => boolean): Argument[] {
  const args: Argument[] = []
  let last: readonly Argument[] | undefined
  let count = 0
  for (const call of calls) {
    const one = ['', '', call.job.cost, call.job.terms]
    if (last && one.some((value, i) => value !== last?.[i])) {
      args.push(...last, count)
      count = 0
    }
    if (isNew(call)) count += 1
    last = one
  }
  args.push(...(last ?? []), count)
  return args
}

/** Whether BullMQ might find a job with its id, or its deduplication id, and add none. */
function mayExist({ job }: AddCall): boolean {
  return job.deduplicationId !== '' || (job.id !== '' && !job.hasNewId)
}

/** The new jobs of a bulk. @param found for each that may exist whether Redis knows it, as if it were the first */
function newJobs(calls: readonly AddCall[], found: ReadonlyMap<AddCall, boolean>): ReadonlySet<AddCall> {
  const [added, ids, deduplicationIds] = [new Set<AddCall>(), new Set<unknown>(), new Set<unknown>()]
  for (const call of calls) {
    const { id, deduplicationId } = call.job
    if (found.get(call) || (id !== '' && ids.has(id)) || deduplicationIds.has(deduplicationId)) continue
    added.add(call)
    ids.add(id)
    if (deduplicationId !== '') deduplicationIds.add(deduplicationId)
  }
  return added
}

/** Whether the jobs of a bulk are all new or, if the call was resent, were all added by it before. */
function areNewOrNone(calls: readonly AddCall[]): boolean {
  return calls.length > 0 && calls.every(({ job }) => job.hasNewId && job.deduplicationId === '')
}

/** Appends one job of a bulk. */
function pushJob(to: Argument[], { script, args, job }: AddCall): void {
  const { length } = args
  to.push(BULK_KIND[script], args[length - 3], args[length - 2], args[length - 1])
  to.push(job.id, job.deduplicationId, job.cost, job.terms, job.group ? JSON.stringify(job.group) : '')
}

/** Cuts a bulk into parts of one script each, in order. A job larger than a part is one by itself. */
function partsOf(calls: readonly AddCall[]): AddCall[][] {
  const most = calls.length > BULK_JOBS ? PART_JOBS : BULK_JOBS
  const parts: AddCall[][] = []
  let part: AddCall[] = []
  let bytes = 0
  for (const call of calls) {
    const more = bytesOf(call)
    if (part.length > 0 && (part.length === most || bytes + more > BULK_BYTES)) {
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
  let bytes = 0
  for (let i = args.length - 3; i < args.length; i++) bytes += Buffer.byteLength(args[i] as string | Buffer)
  return bytes
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

function noteAnswer(calls: readonly AddCall[]): void {
  for (const { first } of calls) first?.note()
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
  readonly #fitting = new ShortTries()
  readonly #fittingInGroups = new ShortTries()

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
    return runScript<string | number | null, unknown>(client, command, args, (reply) => {
      if (!this.#fitting.served(reply)) return this.#decided(client, call, keys)
      return call.job.position ? placed(reply, call.job) : reply
    })
  }

  async #decided(client: Client, call: AddCall, keys: number): Promise<unknown> {
    const command = this.#scripts.command(call.script)
    const run = () => runScript<readonly unknown[]>(client, command, admitArguments(call, keys, this.#store))
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
    if (added) return added
    const raw = await this.#runBulk(client, calls, keys, ['', CLAIM_LEASE_MS, EACH, ''])
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
    if (parts.length === 1 || this.#dependsOnGroups(calls)) return this.#wholeBulk(client, calls, keys)
    // Before any part is sent: none is taken back.
    this.#checkLimits(calls)
    const claim = uniqueId()
    const claimed = await this.#claim(claim, calls)
    if (claimed === BOUND_BY_GROUPS) return this.#wholeBulk(client, calls, keys)
    // Without places to claim, the parts are still one bulk.
    if (claimed !== CLAIMED) return this.#bulkParts(client, parts, keys, '')
    try {
      return await this.#bulkParts(client, parts, keys, claim)
    } finally {
      await this.#store.run('claim-places', ['', '', claim, 'release', CLAIM_LEASE_MS])
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
    return added ? allAdded(added) : this.#bulkPart(client, calls, keys, { claim: '' })
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
    { claim, kind = WHOLE }: { claim: string; kind?: BulkKind },
  ): Promise<unknown[]> {
    const added = claim === '' ? undefined : await this.#addShort(client, calls, keys, claim)
    if (added) return allAdded(added)
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
  ): Promise<unknown[] | undefined> {
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
  ): Promise<unknown[] | undefined> {
    const args: Argument[] = [...keys, this.#store.key, this.#store.memory.identityText, ...terms]
    for (const { args: theirs, job } of calls) {
      const { length } = theirs
      args.push(theirs[length - 3], theirs[length - 2], theirs[length - 1], job.group?.[0])
    }
    const raw = await runScript<unknown[] | null>(client, this.#scripts.command('admit-bulk-groups'), args)
    if (!this.#fittingInGroups.served(raw)) return undefined
    noteAnswer(calls)
    return (raw as unknown[]).map(errorOrReply)
  }

  async #addFitting(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    terms: readonly Argument[],
  ): Promise<unknown[] | undefined> {
    const args: Argument[] = [...keys, this.#store.key, this.#store.memory.stored?.fits ?? '', ...terms]
    for (const { script, args: theirs } of calls) args.push(BULK_KIND[script], ...theirs.slice(-3))
    const raw = await runScript<[number, unknown[]] | null>(client, this.#scripts.command('admit-bulk-fitting'), args)
    if (!this.#fitting.served(raw)) return undefined
    noteAnswer(calls)
    const [waiting, replies] = raw as [number, unknown[]]
    tellPositions(calls, replies, waiting)
    return replies.map(errorOrReply)
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
        const areNew = areNewOrNone(calls) ? '1' : ''
        const args = [...keys, this.#store.key, ...this.#store.memory.identity, ...terms, areNew]
        for (const call of calls) pushJob(args, call)
        return runScript(client, command, args)
      },
    )
    this.#store.memory.learn(raw[5] as string[] | null)
    noteAnswer(calls)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw
  }

  /** Looks for the jobs of a large bulk in parts: their number decides how long Redis is busy. */
  async #findExisting(calls: readonly AddCall[]): Promise<ReadonlyMap<AddCall, boolean>> {
    const found = new Map<AddCall, boolean>()
    const asked = calls.filter(mayExist)
    for (let from = 0; from < asked.length; from += FOUND_AT_ONCE) {
      const part = asked.slice(from, from + FOUND_AT_ONCE)
      const args = part.flatMap(({ job }) => [job.hasNewId ? '' : job.id, job.deduplicationId])
      const isNew = (await this.#store.run('find-new', args)) as readonly number[]
      for (const [i, call] of part.entries()) found.set(call, isNew[i] === 0)
    }
    return found
  }

  /** @returns whether places were claimed, which requires a capacity, and that no group of a job has one of its own */
  async #claim(claim: string, calls: readonly AddCall[]): Promise<unknown> {
    const added = newJobs(calls, await this.#findExisting(calls))
    const jobs = claimedJobs(calls, (call) => added.has(call))
    const groups = new Set(calls.flatMap(({ job }) => (job.group ? [job.group[0]] : [])))
    const named = groups.size > 0 ? JSON.stringify([...groups]) : ''
    const raw = await withRestore(
      () => this.#store,
      () => {
        const args = [...this.#store.memory.identity, claim, 'claim', CLAIM_LEASE_MS, named, ...jobs]
        return this.#store.run('claim-places', args) as Promise<unknown[]>
      },
    )
    noteAnswer(calls)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw[2]
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
 * Sends concurrent adds in one script: while others are in flight, it collects those of one turn of the event loop.
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
      // HTTP requests that arrive together run in separate callbacks: setImmediate comes after all of them.
      defer: setImmediate,
      least: MIN_BATCH,
      enough: (jobs) => Math.min(BULK_JOBS, Math.max(MIN_BATCH, Math.ceil(jobs / IN_FLIGHT))),
    })
  }

  add(call: AddCall, client: Client): Promise<unknown> {
    const collects = this.#collector.underWay > 0 && fitsBulk(call)
    return collects ? this.#collector.add({ client, call }) : this.#collector.alone({ client, call })
  }

  /** Sends what is collected now, before a call that must come after it. */
  flush(): void {
    this.#collector.flush()
  }
}
