import type { Argument } from '../redis/commands.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type AddCall, hasDeadline, noteAnswer } from './add-call.ts'
import { refusalOf } from './reply.ts'
import { withRestore } from './restore.ts'

/** Jobs per script that looks for existing ones: it blocks Redis for about 2 ms. */
const FOUND_AT_ONCE = 200
export const CLAIM_LEASE_MS = 10_000

/** The results of `lua/verbs/claim-places.lua` about the places of a bulk. */
export const CLAIMED = 1
export const BOUND_BY_GROUPS = 2

/**
 * The jobs of a bulk in the format of `lua/verbs/claim-places.lua`: equal jobs are sent once, with the number of new
 * ones. With deadlines only adjacent ones: the order of different jobs decides when they start.
 */
function claimedJobs(calls: readonly AddCall[], isNew: (call: AddCall) => boolean): Argument[] {
  const isOrdered = calls.some(({ job }) => hasDeadline(job))
  const sent: { job: AddCall['job']; count: number }[] = []
  const alike = new Map<string, (typeof sent)[number]>()
  for (const call of calls) {
    const { job } = call
    const key = `${job.cost} ${job.terms}`
    let run = alike.get(key)
    if (!run) {
      if (isOrdered) alike.clear()
      run = { job, count: 0 }
      alike.set(key, run)
      sent.push(run)
    }
    if (isNew(call)) run.count += 1
  }
  return sent.flatMap(({ job, count }) => ['', '', job.cost, job.terms, count])
}

/** Whether BullMQ might find a job with its id, or its deduplication id, and add none. */
function mayExist({ job }: AddCall): boolean {
  return job.deduplicationId !== '' || (job.id !== '' && !job.hasNewId)
}

/** The new jobs of a bulk. @param found for each that may exist, whether Redis knows it, as if it were the first */
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

/** Claims the places of a bulk in several parts before its first part is sent. */
export class BulkClaims {
  readonly #store: ShapeStore
  readonly #queueName: string

  constructor(store: ShapeStore, queueName: string) {
    this.#store = store
    this.#queueName = queueName
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
  async take(claim: string, calls: readonly AddCall[]): Promise<unknown> {
    const added = newJobs(calls, await this.#findExisting(calls))
    const jobs = claimedJobs(calls, (call) => added.has(call))
    const groups = new Set(calls.flatMap(({ job }) => (job.group ? [job.group[0]] : [])))
    const named = groups.size > 0 ? JSON.stringify([...groups]) : ''
    const raw = await withRestore(
      () => this.#store,
      () => {
        const args = [this.#store.memory.identity, claim, 'claim', CLAIM_LEASE_MS, named, ...jobs]
        return this.#store.run('claim-places', args) as Promise<unknown[]>
      },
    )
    noteAnswer(calls)
    const refusal = refusalOf(raw, this.#queueName)
    if (refusal) throw refusal
    return raw[2]
  }

  /** Frees the rest of a claim. */
  async release(claim: string): Promise<void> {
    await this.#store.run('claim-places', ['', claim, 'release', CLAIM_LEASE_MS])
  }
}
