import type { RedisQueueBackend } from 'bullmq'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { queueNameOf } from '../redis/keys.ts'
import { untilCertain } from '../redis/resends.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import { type Durability, strongerOf } from '../shape/durability.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type AddCall, baseOfCall, describeJob } from './add-call.ts'
import { limitRefusal } from './limit-checks.ts'
import { refusalOf } from './reply.ts'
import { withRestore } from './restore.ts'

export type FlowEntries = Parameters<RedisQueueBackend['addFlow']>[0]
export type FlowResult = Awaited<ReturnType<RedisQueueBackend['addFlow']>>[number]

/** The keys and arguments of BullMQ's script that releases a parent. */
export type ParentRelease = readonly Argument[]

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
  async add(client: Client, calls: readonly AddCall[], releases: readonly ParentRelease[]): Promise<FlowResult[]> {
    const queues = byQueue(calls)
    const stores = queues.map(([base]) => this.#storeOf(base))
    for (const store of stores) await store.prepared()
    for (const [i, [, jobs]] of queues.entries()) {
      const costly = limitRefusal(
        stores[i] as ShapeStore,
        jobs.map(({ job }) => job),
      )
      const refused = costly && (await costly)
      if (refused) throw refused
    }
    const command = this.#scripts.addFlowCommand(client, queues.length)
    const numbers = new Map(queues.map(([base], i) => [base, i + 1]))
    const jobs = calls.flatMap((call) => [numbers.get(baseOfCall(call)), describeJob(call), ...call.args.slice(-3)])
    const send = (sentUs?: number) =>
      runScript<readonly unknown[]>(client, command, [
        ...stores.map(({ key }) => key),
        sentUs === undefined ? '' : JSON.stringify([sentUs, ...calls.map(({ job }) => (job.hasNewId ? '1' : ''))]),
        releases.length,
        ...stores.map(({ memory }) => memory.identity),
        ...jobs,
        ...releases.flat(),
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

  /** The strongest durability among the queues of a flow. */
  durability(calls: readonly AddCall[]): Required<Durability> | undefined {
    return byQueue(calls)
      .map(([base]) => this.#storeOf(base).memory.stored?.durability)
      .reduce(strongerOf, undefined)
  }
}

/**
 * As in BullMQ: a parent whose children all existed and had finished already is released once the whole tree is added.
 */
export function parentReleases(entries: FlowEntries): ParentRelease[] {
  const releases = new Map<string, ParentRelease>()
  for (const { jobData, parentKeyOpts } of entries) {
    const parentKey = parentKeyOpts?.parentKey
    if (!jobData.parent || !parentKey) continue
    const { queueKey, id } = jobData.parent
    releases.set(parentKey, [parentKey, `${parentKey}:dependencies`, queueKey, id, Date.now()])
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

function flowResult(reply: unknown): FlowResult {
  const [error] = Array.isArray(reply) ? (reply as string[]) : []
  return [error === undefined ? null : new Error(error), error === undefined ? reply : undefined] as FlowResult
}
