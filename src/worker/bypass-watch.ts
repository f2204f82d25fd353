import { plainText } from '../plain-text.ts'
import type { Client } from '../redis/commands.ts'
import { clientId, clientText, type QueueClient, unreportedClients } from '../reports/queue-clients.ts'
import type { AnyWorker } from './events.ts'

/** Starts past the meter count as continuing for this long after the last finding, ms. */
const LASTS_MS = 60_000
/** Interval between searches for the clients that take the jobs, ms. */
const LOOK_MS = 5000
/** The warning waits this long for the names of clients, ms: newly connected ones are not suspected. */
const NAMES_MS = 15_000

/** Queues that this process, which may have many workers of one, has warned about. */
const warned = new Set<string>()

/** Reports and warns of jobs that start past the meter, and finds the clients that may take them. */
export class BypassWatch {
  readonly #worker: AnyWorker
  #clients: readonly QueueClient[] = []
  #foundAtMs = Number.NEGATIVE_INFINITY
  #firstAtMs = Number.NEGATIVE_INFINITY
  #lookedAtMs = Number.NEGATIVE_INFINITY
  /** Redis's id of the connection by which the worker waits for jobs; undefined if unknown. */
  clientId: number | undefined

  constructor(worker: AnyWorker) {
    this.#worker = worker
    const client = worker.backend.waitingClient
    if (!client || client.isCluster) return
    client.on('ready', () => void this.#learnId(client))
    if (client.status === 'ready') void this.#learnId(client)
  }

  /** The clients that may take jobs past the meter; undefined if no such start was found lately. */
  get clients(): readonly QueueClient[] | undefined {
    return performance.now() - this.#foundAtMs < LASTS_MS ? this.#clients : undefined
  }

  /** @param jobId of a job that started past the meter */
  found(jobId: string): void {
    if (!this.clients) this.#firstAtMs = performance.now()
    this.#foundAtMs = performance.now()
    this.#worker.emit('foreignWorker', { jobId })
    if (this.#foundAtMs - this.#lookedAtMs < LOOK_MS) return
    this.#lookedAtMs = this.#foundAtMs
    void this.#look().then(() => this.#warn(jobId))
  }

  async #learnId(client: Client): Promise<void> {
    this.clientId = undefined
    try {
      this.clientId = clientId(await client.clientInfo())
    } catch {
      // Without the right to ask, or with a client that cannot, it stays unknown.
    }
  }

  /** Without the right to list clients, or on a cluster, whose nodes have clients of their own, none is found. */
  async #look(): Promise<void> {
    const { name, backend, opts } = this.#worker
    const client = await backend.client
    if (client.isCluster) return
    try {
      const rows = Object.values(await client.hgetall(this.#worker.toKey('meta:workers')))
      const reported = rows.map((row) => /"clientId":(\d+)/.exec(row)?.[1]).map((id) => (id ? Number(id) : undefined))
      const list = await client.clientList()
      this.#clients = unreportedClients(list, { prefix: opts.prefix ?? 'bull', queue: name, reported })
    } catch {
      this.#clients = []
    }
  }

  #warn(jobId: string): void {
    const key = this.#worker.toKey('')
    const waits = this.#clients.length === 0 && performance.now() - this.#firstAtMs < NAMES_MS
    if (waits || warned.has(key)) return
    warned.add(key)
    const by = this.#clients.length === 0 ? '' : `, by ${this.#clients.map(clientText).join(' or ')}`
    process.emitWarning(
      plainText(
        `queue "${this.#worker.name}": job ${jobId} was started past the meter${by}: it obeyed neither rate nor limits. ` +
          "Make every worker of the queue a ShapedWorker, or give BullMQ's Worker createShapedBackend()",
      ),
      { code: 'SLUICE_BYPASSED' },
    )
  }
}
