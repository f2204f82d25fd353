import { addedEnds, byReason, RECENT_MS } from '../reports/recent-ends.ts'
import type { Bypass, EndCounts, Failing, QueueClient, ReasonCount, WorkerStatus } from './queue-status.ts'

/**
 * A worker with jobs counts as gone after this long without a report; an idle one reports only rarely. As in
 * `lua/verbs/report.lua`.
 */
const GONE_MS = 60_000
const GONE_IDLE_MS = 3_600_000
/** A queue fails if at least this many attempts of the last minutes failed, and at least this share of them. */
const LEAST_FAILED = 5
const LEAST_SHARE = 0.1
/** Starts past the meter count as continuing for this long after the last finding. As in `lua/reports/bypass.lua`. */
const LASTS_US = 60_000_000
/** A shorter time is too short for an estimate. */
const LEAST_US = 1_000_000
const STATES: readonly string[] = ['running', 'paused', 'overloaded'] satisfies WorkerStatus['state'][]

/** A worker's report. */
interface Row extends Readonly<Record<string, unknown>> {
  readonly host: string
  readonly pid: number
  readonly name?: string
  readonly seen: number
  readonly since: number
  readonly state: WorkerStatus['state']
}

/**
 * Reads the hash `…:meta:workers`: the live workers, by host, process and id.
 * @param wantedMs how long a job has waited for nothing but a worker: a live one would have taken it and reported
 */
export function workerRows(fields: Readonly<Record<string, string>>, nowMs: number, wantedMs: number): WorkerStatus[] {
  return Object.entries(fields)
    .flatMap(([id, json]) => workerRow(id, json, nowMs) ?? [])
    .filter(({ seenAt, running, held }) => {
      const mayBeSilent = running + held === 0 && wantedMs < GONE_MS
      return nowMs - seenAt.getTime() <= (mayBeSilent ? GONE_IDLE_MS : GONE_MS)
    })
    .sort((one, other) => compare(one.host, other.host) || one.pid - other.pid || compare(one.id, other.id))
}

/** An unreadable row is left out: another version may have written it. */
function workerRow(id: string, json: string, nowMs: number): WorkerStatus | undefined {
  const row = parsedRow(json)
  if (!row || !Number.isFinite(row.seen)) return undefined
  const number = (field: string) => (Number.isFinite(row[field]) ? (row[field] as number) : 0)
  return {
    id,
    host: String(row.host ?? ''),
    pid: number('pid'),
    name: typeof row.name === 'string' ? row.name : undefined,
    seenAt: new Date(row.seen),
    startedAt: new Date(number('since')),
    concurrency: number('concurrency'),
    running: number('running'),
    held: number('held'),
    started: number('started'),
    ratePerSecond: number('perSecond'),
    latenessMaxMs: number('latenessMaxUs') / 1000,
    roundTripMs: number('rttUs') / 1000,
    clockErrorMs: Number.isFinite(row.clockErrorUs) ? (row.clockErrorUs as number) / 1000 : undefined,
    loopUtilisation: number('utilisation'),
    state: STATES.includes(row.state) ? row.state : 'running',
    ...recentOf(row, nowMs - row.seen < RECENT_MS),
    clientId: Number.isFinite(row.clientId) ? (row.clientId as number) : undefined,
    bypassedBy: nowMs - row.seen < GONE_MS ? listOf<QueueClient>(row.bypassedBy) : [],
  }
}

/** An idle worker stops reporting: its last report about recent minutes is then outdated. */
function recentOf({ ends, reasons }: Row, isRecent: boolean): Pick<WorkerStatus, 'recentEnds' | 'failureReasons'> {
  const counts = (isRecent && typeof ends === 'object' ? ends : null) as Partial<EndCounts> | null
  const { completed = 0, failed = 0, failedAttempts = 0 } = counts ?? {}
  return {
    recentEnds: { completed, failed, failedAttempts },
    failureReasons: isRecent ? listOf<ReasonCount>(reasons) : [],
  }
}

function listOf<T>(value: unknown): readonly T[] {
  return Array.isArray(value) ? (value as T[]) : []
}

/** undefined for a text that is not a report. */
function parsedRow(json: string): Row | undefined {
  try {
    const row = JSON.parse(json) as Row | null
    return typeof row === 'object' ? (row ?? undefined) : undefined
  } catch {
    return undefined
  }
}

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other)
}

/** From the workers' last reports about the preceding five minutes; undefined if too few attempts failed. */
export function failingOf(workers: readonly WorkerStatus[]): Failing | undefined {
  const { completed, failed, failedAttempts } = addedEnds(workers.map(({ recentEnds }) => recentEnds))
  const attempts = completed + failedAttempts
  if (failedAttempts < LEAST_FAILED || failedAttempts < LEAST_SHARE * attempts) return undefined
  const reasons = byReason(workers.flatMap(({ failureReasons }) => failureReasons))
  return { attempts, failedAttempts, failed, share: failedAttempts / attempts, reasons }
}

/** @param meter the hash `…:meta:meter` */
export function bypassOf(
  meter: Readonly<Record<string, string>>,
  workers: readonly WorkerStatus[],
  nowUs: number,
): Bypass | undefined {
  const number = (field: string) => Number(meter[field] ?? 0)
  const atUs = number('bypassedAt')
  if (atUs === 0 || nowUs - atUs > LASTS_US) return undefined
  const forUs = atUs - number('bypassedFrom')
  const count = number('bypassedTotal') - number('bypassedBase')
  return {
    at: new Date(atUs / 1000),
    jobId: meter.bypassedJob ?? '',
    perSecond: forUs >= LEAST_US ? (count * 1_000_000) / forUs : undefined,
    clients: uniqueClients(workers.flatMap(({ bypassedBy }) => bypassedBy)),
  }
}

export function uniqueClients(clients: readonly QueueClient[]): QueueClient[] {
  return [...new Map(clients.map((client) => [client.address, client])).values()]
}
