import type { RedisQueueBackend } from 'bullmq'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { queueNameOf } from '../redis/keys.ts'
import { untilCertain } from '../redis/resends.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import { type Durability, strongerOf } from '../shape/durability.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type AddCall, baseOfCall } from './add-call.ts'
import { waitsForChildren } from './job-terms.ts'
import { checkLimitCosts } from './limit-costs.ts'
import { refusalOf } from './reply.ts'
import { withRestore } from './restore.ts'

export type FlowEntries = Parameters<RedisQueueBackend['addFlow']>[0]
export type FlowResult = Awaited<ReturnType<RedisQueueBackend['addFlow']>>[number]

/** One call of a script of BullMQ: its keys, then its arguments. */
export interface PlainCall {
  readonly script: string
  readonly args: readonly Argument[]
}

/**
 * Admits a flow to all its queues or not at all, in one script. In a MULTI, a script missing from Redis's script cache
 * would fail alone while the others run; a single script is either cached or not, and can be resent.
 */
export class FlowAdmission {
  readonly #scripts: ScriptSet
  readonly #storeOf: (base: string) => ShapeStore

  constructor(scripts: ScriptSet, storeOf: (base: string) => ShapeStore) {
    this.#scripts = scripts
    this.#storeOf = storeOf
  }

  /** @returns BullMQ's `[error, id or code]` for each call */
  async add(client: Client, calls: readonly AddCall[], after: readonly PlainCall[]): Promise<FlowResult[]> {
    const queues = byQueue(calls)
    const stores = queues.map(([base]) => this.#storeOf(base))
    for (const store of stores) await store.prepared()
    queues.forEach(([, jobs], i) => {
      for (const { job } of jobs) checkLimitCosts(stores[i]?.memory.stored, job)
    })
    const command = this.#scripts.admitFlowCommand(client, queues.length)
    const all = [...calls, ...after].flatMap((call) => this.#callArguments(call))
    const send = (sentUs?: number) =>
      runScript<readonly unknown[]>(client, command, [
        ...stores.map(({ key }) => key),
        sentUs === undefined ? calls.length + after.length : sentAgain(queues, calls, after.length, sentUs),
        ...queues.flatMap(([, jobs], i) => queueArguments(jobs, stores[i] as ShapeStore)),
        ...all,
      ])
    const raw = await withRestore((refusal) => stores[Number(refusal[2]) - 1] as ShapeStore, untilCertain(send))
    const news = (raw[4] ?? []) as readonly (string[] | null)[]
    stores.forEach(({ memory }, i) => {
      memory.learn(news[i])
    })
    const [refusing] = queues[Number(raw[2]) - 1] ?? ['']
    const refusal = refusalOf(raw, queueNameOf(refusing))
    if (refusal) throw refusal
    const results = (raw[3] as readonly unknown[]).map(flowResult)
    for (const [failed] of results.slice(calls.length)) if (failed) throw failed
    return results.slice(0, calls.length)
  }

  /** What the queues of a flow ask for together. */
  durability(calls: readonly AddCall[]): Required<Durability> | undefined {
    return byQueue(calls)
      .map(([base]) => this.#storeOf(base).memory.stored?.durability)
      .reduce(strongerOf, undefined)
  }

  #callArguments({ script, args }: PlainCall): Argument[] {
    const keys = this.#scripts.originalKeys(script)
    return [script, keys, args.length - keys, ...args]
  }
}

/**
 * As in BullMQ: a parent whose children all existed and had finished already is released once the whole tree is added.
 */
export function parentReleases(entries: FlowEntries): PlainCall[] {
  const releases = new Map<string, PlainCall>()
  for (const { jobData, parentKeyOpts } of entries) {
    const parentKey = parentKeyOpts?.parentKey
    if (!jobData.parent || !parentKey) continue
    const args = [parentKey, `${parentKey}:dependencies`, jobData.parent.queueKey, jobData.parent.id, Date.now()]
    releases.set(parentKey, { script: 'releaseParentIfNoPendingDependencies', args })
  }
  return [...releases.values()]
}

function byQueue(calls: readonly AddCall[]): [string, AddCall[]][] {
  const queues = new Map<string, AddCall[]>()
  for (const call of calls) {
    const base = baseOfCall(call)
    const jobs = queues.get(base)
    if (jobs) jobs.push(call)
    else queues.set(base, [call])
  }
  return [...queues]
}

/** What the script needs of a flow that was sent before. */
function sentAgain(
  queues: readonly (readonly [string, readonly AddCall[]])[],
  calls: readonly AddCall[],
  after: number,
  sentUs: number,
): string {
  const numbers = new Map(queues.map(([base], i) => [base, i + 1]))
  const jobs = calls.map((call) => {
    const { id, hasNewId, deduplicationId } = call.job
    return [id, numbers.get(baseOfCall(call)), hasNewId === true, deduplicationId ?? '']
  })
  return JSON.stringify([calls.length + after, sentUs, ...jobs])
}

function queueArguments(jobs: readonly AddCall[], store: ShapeStore): Argument[] {
  const terms = jobs.flatMap(({ script, job }) => [
    job.id,
    job.deduplicationId,
    job.cost,
    script === 'addParentJob' ? waitsForChildren(job.terms) : job.terms,
    job.group ? JSON.stringify(job.group) : '',
  ])
  return [...store.memory.identity, jobs.length, ...terms]
}

function flowResult(reply: unknown): FlowResult {
  const [error] = Array.isArray(reply) ? (reply as string[]) : []
  return [error === undefined ? null : new Error(error), error === undefined ? reply : undefined] as FlowResult
}
