import type { JobJson } from 'bullmq'
import { type AdmissionEstimate, isLost, readEstimate, refusalOf } from './admission-reply.ts'
import { QueueUnavailableError } from './errors.ts'
import type { JobCosts } from './job-options.ts'
import { baseOfMetaKey, queueNameOf } from './keys.ts'
import { checkLimitCosts } from './limit-costs.ts'
import { type Argument, type Client, runScript } from './redis-commands.ts'
import type { ScriptSet } from './scripts.ts'
import type { ShapeStore } from './shape-store.ts'
import { uniqueId } from './unique-id.ts'

/**
 * Under this key the options of a job carry where to put its estimate. A symbol, so that it is neither stored nor seen.
 */
export const ESTIMATE = Symbol('sluice.estimate')

/** One call of a BullMQ add script: its keys and arguments, and what the admission has to know of the job. */
export interface AddCall {
  readonly script: string
  readonly args: readonly Argument[]
  readonly job: AddedJob
}

/** What the admission has to know of a job. */
export interface AddedJob {
  readonly cost: number
  /** In units of limits. */
  readonly costs?: Readonly<Record<string, number>>
  readonly id: string
  readonly deduplicationId: string
  readonly schedulerId?: string
  readonly estimate?: (estimate: AdmissionEstimate) => void
}

/** Where `…:meta` stands among the keys of each add script: the queue's base is read off it. */
const META_KEY_AT: Readonly<Record<string, number>> = {
  addStandardJob: 2,
  addPrioritizedJob: 1,
  addDelayedJob: 1,
  addParentJob: 0,
  addJobScheduler: 4,
}
const KIND: Readonly<Record<string, string>> = {
  addStandardJob: 'standard',
  addPrioritizedJob: 'prioritized',
  addDelayedJob: 'delayed',
}

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

/** Up to so many jobs are one script: more would hold Redis up for other clients. */
export const BULK_JOBS = 200
const CLAIM_LEASE_MS = 10_000
const MAX_RESTORES = 3

export function addedJob(job: JobJson, jobId: string | undefined): AddedJob {
  const options = job.opts as JobCosts & { [ESTIMATE]?: (estimate: AdmissionEstimate) => void }
  const estimate = options[ESTIMATE]
  return {
    cost: options.cost ?? 1,
    ...(options.costs ? { costs: options.costs } : {}),
    id: jobId ?? '',
    deduplicationId: job.deduplicationId ?? '',
    ...(estimate ? { estimate } : {}),
  }
}

/** Whether a call can be one of a bulk: no estimate is asked for, nothing is to be checked of it beforehand, and it is a kind that bulks know. */
export function fitsBulk({ script, job }: AddCall): boolean {
  return KIND[script] !== undefined && job.estimate === undefined && job.costs === undefined
}

export function baseOfCall({ script, args }: Pick<AddCall, 'script' | 'args'>): string {
  return baseOfMetaKey(args[META_KEY_AT[script] as number] as string)
}

/** Splices our key and arguments into those of an add script. */
function admitArguments(call: AddCall, keys: number, store: ShapeStore): Argument[] {
  const { cost, id, deduplicationId, schedulerId, estimate } = call.job
  const job = JSON.stringify([cost, id, deduplicationId, schedulerId ?? '', estimate ? 1 : 0])
  return [...call.args.slice(0, keys), store.key, ...call.args.slice(keys), store.memory.identityText, job]
}

/** Runs a call again after what Redis had lost was put back; `storeOf` tells of which queue it was. */
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

/** Lets jobs of one queue in, one by one or in bulk. */
export class Admission {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #queueName: string

  constructor(scripts: ScriptSet, store: ShapeStore, queueName: string) {
    this.#scripts = scripts
    this.#store = store
    this.#queueName = queueName
  }

  /** An id for a job that was given none, if a re-sent command must not add it twice: BullMQ's numbers can not tell. */
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
    // Where there was nothing to decide, the answer is BullMQ's own.
    if (!Array.isArray(raw)) return raw
    this.#store.memory.learn(raw[8])
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    call.job.estimate?.(readEstimate(raw))
    return raw[2]
  }

  /** Each job by itself, in one script. @returns for each BullMQ's reply, or why it was not added */
  async each(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    const replies = await this.#bulkPart(client, calls, BULK_KEYS.map(toKey), { claim: '', each: true })
    return replies.map((reply) => {
      if (!Array.isArray(reply)) return reply
      return refusalOf(reply, this.#queueName) ?? new Error(String(reply[1]))
    })
  }

  /** All jobs or none. @returns BullMQ's replies, in order */
  async bulk(client: Client, calls: readonly AddCall[], toKey: (type: string) => string): Promise<unknown[]> {
    const keys = BULK_KEYS.map(toKey)
    if (calls.length <= BULK_JOBS) return this.#bulkPart(client, calls, keys, { claim: '' })
    const claim = uniqueId()
    if (!(await this.#claim(claim, calls))) return this.#bulkParts(client, calls, keys, '')
    try {
      return await this.#bulkParts(client, calls, keys, claim)
    } finally {
      await this.#store.run('claim-places', ['', '', claim, 'release', CLAIM_LEASE_MS])
    }
  }

  async #bulkParts(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    claim: string,
  ): Promise<unknown[]> {
    const replies: unknown[] = []
    for (let i = 0; i < calls.length; i += BULK_JOBS) {
      replies.push(...(await this.#bulkPart(client, calls.slice(i, i + BULK_JOBS), keys, { claim })))
    }
    return replies
  }

  async #bulkPart(
    client: Client,
    calls: readonly AddCall[],
    keys: readonly string[],
    { claim, each = false }: { claim: string; each?: boolean },
  ): Promise<unknown[]> {
    if (!each) for (const { job } of calls) checkLimitCosts(this.#store.memory.stored, job)
    const jobs = calls.flatMap(({ script, args, job }) => [
      KIND[script] as string,
      ...args.slice(-3),
      job.id,
      job.deduplicationId,
      job.cost,
    ])
    const raw = await withRestore(
      () => this.#store,
      () =>
        runScript(client, this.#scripts.command('admit-bulk'), [
          ...keys,
          this.#store.key,
          ...this.#store.memory.identity,
          claim,
          CLAIM_LEASE_MS,
          each ? '1' : '0',
          ...jobs,
        ]),
    )
    this.#store.memory.learn(raw[5] as string[] | null)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw[2] as unknown[]
  }

  /** @returns whether there are places to claim, which is so where the queue has a capacity */
  async #claim(claim: string, calls: readonly AddCall[]): Promise<boolean> {
    const cost = calls.reduce((most, { job }) => Math.max(most, job.cost), 0)
    const ids = calls.flatMap(({ job }) => [job.id, job.deduplicationId])
    const raw = await withRestore(
      () => this.#store,
      () => {
        const args = [...this.#store.memory.identity, claim, 'claim', CLAIM_LEASE_MS, cost, ...ids]
        return this.#store.run('claim-places', args) as Promise<unknown[]>
      },
    )
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw[2] === 1
  }
}
