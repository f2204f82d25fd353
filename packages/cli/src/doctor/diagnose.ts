import type { Redis } from 'ioredis'
import type { Inspector, QueueStatus } from 'sluice/inspect'
import { type Role, urgencyOf } from 'sluice/internal'
import {
  type Check,
  type Examined,
  type ExaminedQueue,
  type Finding,
  Findings,
  type Level,
  permitted,
  type QueueCheck,
} from './check.ts'
import { access } from './checks/access.ts'
import { bypassingWorkers } from './checks/bypassing-workers.ts'
import { CANARY, canaryJob } from './checks/canary-job.ts'
import { clockOffset } from './checks/clock-offset.ts'
import { concurrencyForRate } from './checks/concurrency-for-rate.ts'
import { eviction } from './checks/eviction.ts'
import { functions } from './checks/functions.ts'
import { orphans } from './checks/orphans.ts'
import { pausedGroups } from './checks/paused-groups.ts'
import { persistence } from './checks/persistence.ts'
import { replication } from './checks/replication.ts'
import { rights } from './checks/rights.ts'
import { versions } from './checks/versions.ts'
import { workerClocks } from './checks/worker-clocks.ts'

/** In the order in which they are reported. */
const CHECKS: readonly Check[] = [
  versions,
  eviction,
  persistence,
  replication,
  clockOffset,
  access,
  rights,
  canaryJob,
  functions,
  orphans,
]
const QUEUE_CHECKS: readonly QueueCheck[] = [
  conditions,
  pausedGroups,
  bypassingWorkers,
  workerClocks,
  concurrencyForRate,
]

const READING = 'to read the keys of queues'

export interface DiagnoseOptions {
  readonly client: Redis
  readonly inspector: Inspector
  /** The prefix of the queues. Default `bull`. */
  readonly prefix?: string
  /** The prefix of limits. Default `sluice`. */
  readonly limitsPrefix?: string
  /** Default: all that have a shape. */
  readonly queues?: readonly string[]
  /** The role whose rights the user needs. Default `worker`, which includes those of a producer. */
  readonly role?: Role
  /** How long a worker may be connected without having reported, s. Default 15: an idle one reports every 10. */
  readonly newWorkerS?: number
  /** The clock of this machine, ms. Default `Date.now`. */
  readonly nowMs?: () => number
}

/**
 * Checks the server, the user and the queues. It writes only to a temporary queue of its own. The checks run one after
 * the other: run together, they would slow down what they measure.
 */
export async function diagnose(options: DiagnoseOptions): Promise<Finding[]> {
  const { client, inspector, prefix = 'bull', limitsPrefix = 'sluice', role = 'worker' } = options
  const { newWorkerS = 15, nowMs = Date.now } = options
  const found: Finding[] = []
  const queues = options.queues?.length ? options.queues : await namedQueues(inspector, found)
  const examined: Examined = { client, inspector, prefix, limitsPrefix, role, queues, newWorkerS, nowMs }
  for (const check of CHECKS) found.push(...(await check(examined)))
  const reading = new Findings('queues')
  found.push(...(await permitted(reading, READING, () => examineQueues(examined, options.queues))))
  return found
}

async function namedQueues(inspector: Inspector, found: Finding[]): Promise<readonly string[]> {
  let names: readonly string[] = []
  const findings = await permitted(new Findings('queues'), READING, async () => {
    names = (await inspector.queues()).filter((name) => !name.startsWith(CANARY))
    return []
  })
  found.push(...findings)
  return names
}

/** @param wanted the queues that the caller named; one of the others may have been removed since it was listed */
async function examineQueues(examined: Examined, wanted: readonly string[] = []): Promise<Finding[]> {
  const { inspector, queues } = examined
  const statuses = await inspector.status(queues)
  const found: QueueFindings[] = []
  for (const [i, queue] of queues.entries()) {
    const status = statuses[i]
    const missing = new Findings('queues', queue).error('there is no such queue', 'check its name and the prefix')
    if (status) found.push({ status, findings: await examineQueue({ ...examined, queue, status }) })
    else if (wanted.includes(queue)) found.push({ status, findings: [missing] })
  }
  return found.toSorted(compareQueues).flatMap(({ findings }) => findings)
}

/** The numbers of a queue that could not be read as a whole say nothing. */
async function examineQueue(examined: ExaminedQueue): Promise<Finding[]> {
  const found: Finding[] = []
  const checks = examined.status.unread ? [conditions] : QUEUE_CHECKS
  for (const check of checks) found.push(...(await check(examined)))
  return found
}

interface QueueFindings {
  readonly status: QueueStatus | undefined
  readonly findings: readonly Finding[]
}

/** The worst first: by its worst finding, then by what needs a look first. */
function compareQueues(one: QueueFindings, other: QueueFindings): number {
  const badness = ({ findings }: QueueFindings) => Math.max(...findings.map(({ level }) => WORSE.indexOf(level)))
  const urgency = ({ status }: QueueFindings) => (status ? urgencyOf(status.conditions) : Number.POSITIVE_INFINITY)
  return badness(other) - badness(one) || urgency(other) - urgency(one)
}

const WORSE: readonly Level[] = ['ok', 'skipped', 'note', 'warning', 'error']

/** What is out of the ordinary about the queue, a finding for each: the same that `status` and the fleet page show. */
async function conditions({ queue, status }: ExaminedQueue): Promise<Finding[]> {
  if (status.conditions.length === 0) return [new Findings('state', queue).ok('nothing is out of the ordinary')]
  return status.conditions.map(({ name, level, text, next }) => {
    const findings = new Findings(name.toLowerCase().replaceAll(' ', '-'), queue)
    return findings[level](text, next)
  })
}
