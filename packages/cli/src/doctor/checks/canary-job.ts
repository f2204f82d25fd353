import { randomBytes } from 'node:crypto'
import type { Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { isDenied, type Role } from 'sluice/internal'
import { CALLS_REMEMBERED } from 'sluice/internal/bullmq'
import { type Examined, type Finding, Findings } from '../check.ts'

const TIMEOUT_MS = 10_000
const ADD: readonly Role[] = ['producer', 'gateway', 'worker', 'operator']
const RUN: readonly Role[] = ['worker', 'operator']

/** Adds, runs and removes a job with the rights of the user, on a queue of its own that is removed afterwards. */
export async function canaryJob({ client, prefix, role }: Examined): Promise<Finding[]> {
  const findings = new Findings('canary')
  if (!ADD.includes(role))
    return [findings.skipped(`a user of the role ${role} adds no jobs`, 'none: it needs no more')]
  const name = `${CANARY}${randomBytes(6).toString('hex')}`
  const connection = client.duplicate({ maxRetriesPerRequest: null })
  connection.on('error', () => {})
  const canary = new Canary({ name, prefix, connection, timeoutMs: TIMEOUT_MS })
  const found: Finding[] = []
  try {
    await canary.add()
    if (RUN.includes(role)) await canary.run()
    found.push(findings.ok(`a job was ${RUN.includes(role) ? 'added, started, finished' : 'added'} and removed`))
  } catch (error) {
    const remedy = isDenied(error)
      ? `grant the user what docs/acl/${role}.acl lists, or give its actual role with --role`
      : 'mend first what is found of this Redis'
    found.push(findings.error(`a job could not ${canary.step}: ${(error as Error).message}`, remedy))
  }
  const left = await canary.close().finally(() => connection.disconnect())
  if (left === 0) return found
  const remedy = `remove the keys that are left under ${prefix}:${name}:*`
  return [...found, findings.error(`the user may not remove keys: ${left} of the canary's are left`, remedy)]
}

/** How the names of all canaries begin: each doctor has a queue of its own, and several may run at once. */
export const CANARY = 'sluice-doctor-'

/** Exercises every part of the scripts: a bound, a rate, a global concurrency. */
const SHAPE = { rate: '1000/s', burst: 10, capacity: 10, concurrency: 10 }
/** BullMQ would print its own warnings about the server: other checks report these. */
const QUIET = { skipVersionCheck: true }
/** Fixed, so that a job whose add failed midway can be removed too. */
const JOB_ID = 'canary'

interface CanaryOptions {
  readonly name: string
  readonly prefix: string
  /** A client of its own: workers need `maxRetriesPerRequest: null`. */
  readonly connection: Redis
  /** How long a step may take, ms. */
  readonly timeoutMs: number
}

/** A job on its own queue, followed from add to completion. */
class Canary {
  readonly #options: CanaryOptions
  readonly #queue: ShapedQueue
  readonly #denied: Promise<never>
  #deny: (error: Error) => void = () => {}
  #worker: ShapedWorker | undefined
  /** The current step. */
  step = 'be added'

  constructor(options: CanaryOptions) {
    this.#options = options
    this.#denied = new Promise((_resolve, reject) => {
      this.#deny = reject
    })
    this.#denied.catch(() => {})
    const { name, prefix, connection } = options
    this.#queue = new ShapedQueue(name, { prefix, connection, shape: SHAPE, ...QUIET })
    this.#queue.on('error', (error) => this.#noticed(error))
  }

  async add(): Promise<void> {
    await this.#inTime(this.#queue.add('canary', {}, { jobId: JOB_ID }))
  }

  /** Runs the job to completion, and checks its state afterwards. */
  async run(): Promise<void> {
    this.step = 'start and finish'
    const { name, prefix, connection } = this.#options
    const worker = new ShapedWorker(name, async () => {}, { prefix, connection, ...QUIET })
    this.#worker = worker
    worker.on('error', (error) => this.#noticed(error))
    const ended = new Promise<void>((resolve, reject) => {
      worker.once('completed', () => resolve())
      worker.once('failed', (_job, error) => reject(error))
    })
    await this.#inTime(ended)
    const state = await this.#inTime(this.#queue.getJobState(JOB_ID))
    if (state !== 'completed') throw new Error(`it ended in state ${state}`)
  }

  /** Closes everything and removes every key. @returns how many keys are left; 0 if the user may not check */
  async close(): Promise<number> {
    await this.#worker?.close().catch(() => {})
    await this.#queue.close().catch(() => {})
    const { name, prefix, connection } = this.#options
    const keys = this.#keys()
    // Unlisted first: another doctor takes a listed name without keys for a leftover.
    await connection.srem(`${prefix}:shaped-queues`, name).catch(() => {})
    // An error here would repeat the one of the step, which is the finding.
    await connection.del(...keys).catch(() => {})
    return connection.exists(...keys).catch(() => 0)
  }

  /** By name, because few users may run SCAN. */
  #keys(): string[] {
    const queue = this.#queue
    const suffixes = ['shape', 'meter', 'sleepers', 'claims', 'starts', 'workers', 'history', 'audit', 'audit:starts']
    return [
      ...Object.values(queue.keys),
      ...suffixes.map((suffix) => queue.toKey(`meta:${suffix}`)),
      ...[2, 15, 120].map((seconds) => queue.toKey(`meta:series:${seconds}`)),
      ...[JOB_ID, `${JOB_ID}:lock`, `${JOB_ID}:logs`].map((suffix) => queue.toKey(suffix)),
      ...(this.#worker ? this.#keysOf(this.#worker.id) : []),
    ]
  }

  #keysOf(workerId: string): string[] {
    const grants = Array.from({ length: CALLS_REMEMBERED }, (_, memo) => `meta:grants:${workerId}:${memo}`)
    return [...grants, `meta:left:${workerId}`].map((suffix) => this.#queue.toKey(suffix))
  }

  /** BullMQ carries on after most errors, but a permission error would only be repeated. */
  #noticed(error: Error): void {
    if (isDenied(error)) this.#deny(error)
  }

  async #inTime<T>(done: Promise<T>): Promise<T> {
    const { timeoutMs } = this.#options
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`no result within ${timeoutMs} ms`)), timeoutMs)
    })
    try {
      return await Promise.race([done, this.#denied, late])
    } finally {
      clearTimeout(timer)
    }
  }
}
