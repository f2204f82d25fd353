import type { RedisQueueBackend } from 'bullmq'
import { type AddCall, admitArguments, baseOfCall } from './admission.ts'
import { isLost, refusalOf } from './admission-reply.ts'
import { QueueUnavailableError } from './errors.ts'
import { verdictKey } from './keys.ts'
import type { Argument, Client } from './redis-commands.ts'
import { type ScriptSet, WRAPPED } from './scripts.ts'
import type { ShapeStore } from './shape-store.ts'

const VERDICT_MS = 60_000
const MAX_ATTEMPTS = 4

export type FlowResult = Awaited<ReturnType<RedisQueueBackend['addFlow']>>[number]

/** What a MULTI holds after the jobs of a flow: calls that are BullMQ's own. */
export interface PlainCall {
  readonly script: string
  readonly command: string
  readonly args: readonly Argument[]
}

/**
 * Admits a flow over all its queues or not at all: one MULTI whose first command claims places everywhere and writes
 * a verdict, which every add obeys and the last command deletes.
 */
export class FlowAdmission {
  readonly #scripts: ScriptSet
  readonly #storeOf: (base: string) => ShapeStore
  readonly #keysOf: (script: string) => number

  constructor(scripts: ScriptSet, storeOf: (base: string) => ShapeStore, keysOf: (script: string) => number) {
    this.#scripts = scripts
    this.#storeOf = storeOf
    this.#keysOf = keysOf
  }

  /** @returns for each call BullMQ's `[error, id or code]` */
  async add(client: Client, id: string, calls: readonly AddCall[], after: readonly PlainCall[]): Promise<FlowResult[]> {
    const queues = byQueue(calls)
    for (const [base] of queues) await this.#storeOf(base).prepared()
    for (let attempt = 1; ; attempt++) {
      const results = await this.#transaction(client, id, calls, after, queues)
      if (results.every(([error]) => isNoScript(error)) && attempt < MAX_ATTEMPTS) {
        await this.#reload(client, after)
        continue
      }
      const [error, claim] = results[0] as [Error | null, unknown[]]
      if (error) throw error
      const [base] = queues[Number(claim[2] ?? 1) - 1] as [string, AddCall[]]
      if (isLost(claim) && attempt < MAX_ATTEMPTS) {
        await this.#storeOf(base).restore()
        continue
      }
      const refusal = refusalOf(claim, queueNameOf(base))
      if (refusal) throw refusal
      for (const [failed] of results.slice(1 + calls.length)) if (failed) throw failed
      return results
        .slice(1, 1 + calls.length)
        .map(([failed, raw]) => [failed, (raw as unknown[] | null)?.[2]] as FlowResult)
    }
  }

  async #transaction(
    client: Client,
    id: string,
    calls: readonly AddCall[],
    after: readonly PlainCall[],
    queues: readonly (readonly [string, readonly AddCall[]])[],
  ): Promise<[Error | null, unknown][]> {
    const [firstBase] = queues[0] as readonly [string, unknown]
    const verdict = verdictKey(firstBase, id)
    const stores = queues.map(([base]) => this.#storeOf(base))
    const command = this.#scripts.claimFlowCommand(client, queues.length)
    const transaction = client.multi()
    transaction.runCommand(command, [
      verdict,
      ...stores.map((store) => store.key),
      VERDICT_MS,
      ...queues.flatMap(([, jobs], i) => claimArguments(jobs, stores[i] as ShapeStore)),
    ])
    for (const call of calls) {
      const args = admitArguments(call, this.#keysOf(call.script), this.#storeOf(baseOfCall(call)), verdict)
      transaction.runCommand(this.#scripts.command(call.script), args)
    }
    for (const plain of after) transaction.runCommand(plain.command, [...plain.args])
    transaction.del(verdict)
    const results = await transaction.exec()
    if (!results)
      throw new QueueUnavailableError(queueNameOf(firstBase), 'the transaction of a flow was aborted', false)
    return results
  }

  // In a MULTI a missing script is only queued, so ioredis never learns that it has to send the text again.
  async #reload(client: Client, after: readonly PlainCall[]): Promise<void> {
    const texts = [this.#scripts.claimFlowText(), ...new Set(after.map(({ script }) => this.#scripts.original(script)))]
    for (const [name, { lua }] of this.#scripts.definitions()) if (WRAPPED[name] === 'admit') texts.push(lua)
    const loader = client as unknown as { script(command: 'LOAD', text: string): Promise<unknown> }
    for (const text of texts) await loader.script('LOAD', text)
  }
}

function byQueue(calls: readonly AddCall[]): [string, AddCall[]][] {
  const queues = new Map<string, AddCall[]>()
  for (const call of calls) {
    const base = baseOfCall(call)
    const of = queues.get(base)
    if (of) of.push(call)
    else queues.set(base, [call])
  }
  return [...queues]
}

function claimArguments(jobs: readonly AddCall[], store: ShapeStore): Argument[] {
  const cost = Math.max(...jobs.map(({ job }) => job.cost))
  return [...store.memory.identity, cost, jobs.length, ...jobs.flatMap(({ job }) => [job.id, job.deduplicationId])]
}

function queueNameOf(base: string): string {
  return base.split(':').at(-2) as string
}

function isNoScript(error: Error | null): boolean {
  return error !== null && error.message.startsWith('NOSCRIPT')
}
