import { countText, formatDuration } from '../plain-text.ts'
import type { GroupCounts } from '../queue/groups.ts'
import { clientText } from '../reports/queue-clients.ts'
import type { Condition, ConditionName, QueueFacts } from './queue-status.ts'

type Found = Pick<Condition, 'level' | 'text' | 'next'>

/** The oldest job starves if it has waited at least this long, and this many times as long as the next one. */
const STARVING_MS = 60_000
const STARVING_TIMES = 10
/** A queue whose last refusal is more recent may be full. */
const REFUSED_LATELY_MS = 30_000
/** If the limit on running jobs holds the next job for this long, they may hang. */
const CROWDED_MS = 60_000
/** From this part of its capacity on, a queue has hardly any place. */
export const NEARLY_FULL = 0.9
/** If workers report but have not asked for a job for this long, their jobs may hang. */
const UNTAKEN_MS = 60_000

/**
 * All conditions, the most urgent first. The fleet page, `sluice status` and `sluice doctor` show these, and decide
 * nothing themselves.
 */
const CONDITIONS: Readonly<Record<ConditionName, (queue: QueueFacts) => Found | undefined>> = {
  Unread: unread,
  'No worker': withoutWorker,
  Bypassed: bypassed,
  Failing: failing,
  'Not taken': untaken,
  Full: full,
  Starving: starving,
  'Groups held': groupsHeld,
  Paused: paused,
  'At concurrency': crowded,
  Feedback: fedBack,
  Override: overridden,
  Shadow: ({ shape }) =>
    when(shape?.mode === 'shadow', { level: 'note', text: 'nothing is held, only counted', next: '' }),
  Off: ({ shape }) => when(shape?.mode === 'off', { level: 'note', text: 'nothing is held or counted', next: '' }),
}

const NAMES = Object.keys(CONDITIONS) as ConditionName[]
const CHECKS = NAMES.map((name, i) => ({ name, find: CONDITIONS[name], weight: 2 ** (NAMES.length - 1 - i) }))

/** The conditions of a queue, the most urgent first; empty without any. */
export function conditionsOf(queue: QueueFacts): Condition[] {
  return CHECKS.flatMap(({ name, find, weight }) => {
    const found = find(queue)
    return found ? [{ name, ...found, weight }] : []
  })
}

/** Greater for a more urgent queue; 0 without conditions. */
export function urgencyOf(conditions: readonly Condition[]): number {
  return conditions.reduce((sum, { weight }) => sum + weight, 0)
}

/** Whether all waiting jobs belong to held groups. Workers that find none to take do not report. */
export function areAllHeld({ groups, waiting, grouped = 0 }: QueueFacts): boolean {
  if (!groups || groups.waiting > 0) return false
  // Read a moment later than the others.
  return grouped >= waiting && groups.paused + groups.maxed + groups.limited > 0
}

function when(is: boolean, found: Found): Found | undefined {
  return is ? found : undefined
}

/** A queue's name as an argument of a shell. */
function argument(name: string): string {
  return /^[\w.@%+=,/][\w.@%+=,/-]*$/.test(name) ? name : `'${name.replaceAll("'", String.raw`'\''`)}'`
}

function unread({ unread: parts }: QueueFacts): Found | undefined {
  if (!parts) return undefined
  const next = 'see why a node of the Redis Cluster does not answer'
  if (parts.includes('queue')) {
    return { level: 'error', text: 'its node of Redis did not answer: nothing is known about it', next }
  }
  const names = parts.map((part) => (part === 'head' ? 'its head' : `shard ${part}`))
  return { level: 'error', text: `${names.join(', ')} did not answer: the numbers lack what is there`, next }
}

function withoutWorker(queue: QueueFacts): Found | undefined {
  const { waiting, workers, nextDueAt, at, shape } = queue
  // Workers of a queue without a shape do not report.
  if (!shape) return undefined
  // Only a worker promotes a due delayed job.
  const isDue = nextDueAt !== undefined && nextDueAt <= at
  if ((waiting === 0 && !isDue) || workers.length > 0 || areAllHeld(queue)) return undefined
  const jobs =
    waiting === 1 ? '1 job waits' : waiting === 0 ? 'a delayed job is due' : `${countText(waiting, 'job')} wait`
  const text = `${jobs}, and no worker has reported`
  return { level: 'error', text, next: 'start a ShapedWorker of this queue, or find out why none runs' }
}

function bypassed({ name, bypass, shape }: QueueFacts): Found | undefined {
  if (!bypass) return undefined
  const { perSecond, clients } = bypass
  const many = perSecond === undefined ? 'jobs' : `${Number(perSecond.toPrecision(2))}/s`
  const by = clients.length === 0 ? '' : `, by ${clients.map(clientText).join(' or ')}`
  const find = clients.length === 0 ? `sluice doctor ${argument(name)} looks for the client; ` : ''
  const next = `${find}make it a ShapedWorker, or give its Worker createShapedBackend()`
  return { level: 'error', text: `${many} start past the meter${by}: ${unheldText(shape)}`, next }
}

/** The rules that jobs past the meter break. */
function unheldText(shape: QueueFacts['shape']): string {
  if (shape && !shape.rate && shape.limits) return 'its limits may be exceeded'
  if (shape && !shape.rate && shape.groups) return 'its groups get no fair turns'
  return 'the rate may be exceeded'
}

function failing({ name, failing: found }: QueueFacts): Found | undefined {
  if (!found) return undefined
  const { share, attempts, failed, reasons } = found
  const lost = failed === 0 ? '' : `, ${countText(failed, 'job')} permanently`
  const why = reasons[0] === undefined ? '' : `: ${reasons[0][0]}`
  const text = `${Math.round(share * 100)}% failed${why} (of ${countText(attempts, 'attempt')} in 5 min${lost})`
  return { level: 'error', text, next: `sluice jobs failed ${argument(name)} has the jobs that failed, and why` }
}

function untaken(queue: QueueFacts): Found | undefined {
  const { name, hold, at, workers } = queue
  if (hold?.cause !== 'workers' || workers.length === 0 || areAllHeld(queue)) return undefined
  const sinceMs = at.getTime() - hold.since.getTime()
  if (sinceMs < UNTAKEN_MS) return undefined
  const text = `${placesText(workers)}; the next job waits ${formatDuration(sinceMs)}`
  return { level: 'error', text, next: `sluice top ${argument(name)} shows which worker hangs: restart it` }
}

/** `2 workers, 10 of 10 places taken, 1 paused`. */
function placesText(workers: QueueFacts['workers']): string {
  const taken = workers.reduce((sum, { running, held }) => sum + running + held, 0)
  const places = workers.reduce((sum, { concurrency }) => sum + concurrency, 0)
  const away = (['paused', 'overloaded'] as const).flatMap((state) => {
    const count = workers.filter((worker) => worker.state === state).length
    return count === 0 ? [] : [`${count} ${state}`]
  })
  return [countText(workers.length, 'worker'), `${taken} of ${places} places taken`, ...away].join(', ')
}

/** The effect of a full queue on jobs. */
const WHEN_FULL = {
  reject: 'new jobs are refused',
  'drop-oldest': 'each new job drops the oldest',
  'drop-lowest': 'each new job drops a less important one, or is refused',
}

/**
 * Whether new jobs find no place. A worker that takes one frees a place for a moment, so a queue with a recent refusal
 * and hardly any place counts as full.
 */
function isFull({ depth, capacity, lastRefusedAt, at }: QueueFacts): boolean {
  if (capacity === undefined) return false
  if (depth >= capacity) return true
  const refusedLately = lastRefusedAt !== undefined && at.getTime() - lastRefusedAt.getTime() < REFUSED_LATELY_MS
  return refusedLately && depth >= NEARLY_FULL * capacity
}

function full(queue: QueueFacts): Found | undefined {
  if (!isFull(queue)) return undefined
  const { name, shape, groups, capacity, largestGroup } = queue
  const holds = largestGroup ? `; group ${largestGroup.id} holds ${largestGroup.waiting} of ${capacity} places` : ''
  const next = groups
    ? `sluice group list ${argument(name)} shows which groups hold its places`
    : `sluice top ${argument(name)} shows whether it drains`
  if (shape?.mode === 'off') return { level: 'note', text: `nothing is refused, since the mode is off${holds}`, next }
  if (shape?.mode === 'shadow') return { level: 'note', text: `new jobs would be refused${holds}`, next }
  return { level: 'warning', text: `${WHEN_FULL[shape?.overflow ?? 'reject']}${holds}`, next }
}

function starving({ name, groups, headAgeMs, oldestAgeMs }: QueueFacts): Found | undefined {
  // The oldest job may belong to a held group, which has a condition of its own.
  if (groups && groups.paused + groups.maxed + groups.limited > 0) return undefined
  if (headAgeMs === undefined || oldestAgeMs === undefined) return undefined
  if (oldestAgeMs < Math.max(STARVING_MS, STARVING_TIMES * headAgeMs)) return undefined
  const text = `the oldest job waits for ${formatDuration(oldestAgeMs)}, the next one for ${formatDuration(headAgeMs)}`
  const next = `sluice shape set ${argument(name)} --priority-ageing 1m --reason '…' lets jobs rise as they wait`
  return { level: 'warning', text, next }
}

function groupsHeld({ name, groups }: QueueFacts): Found | undefined {
  if (!groups || groups.paused + groups.maxed === 0) return undefined
  const status = groups.paused > 0 ? 'paused' : 'maxed'
  return {
    level: groups.paused > 0 ? 'warning' : 'note',
    text: heldGroupsText(groups),
    next: `sluice group list ${argument(name)} --status ${status}`,
  }
}

/** `1 group paused, 2 groups held by their rate or limits`. */
function heldGroupsText({ paused: stopped, maxed, limited }: GroupCounts): string {
  const parts = [
    stopped > 0 && `${countText(stopped, 'group')} paused`,
    maxed > 0 && `${countText(maxed, 'group')} held by running jobs`,
    limited > 0 && `${countText(limited, 'group')} held by ${limited === 1 ? 'its' : 'their'} rate or limits`,
  ]
  return parts.filter((part) => part !== false).join(', ')
}

function paused({ name, at, paused: isPaused, pausedUntil, pauseReason }: QueueFacts): Found | undefined {
  const next = `sluice shape history ${argument(name)} says who and why; sluice resume ${argument(name)} --reason '…' lifts it`
  if (isPaused) return { level: 'warning', text: 'until it is resumed', next }
  if (!pausedUntil) return undefined
  const reason = pauseReason === undefined ? '' : `: ${pauseReason}`
  return { level: 'note', text: `for another ${formatDuration(pausedUntil.getTime() - at.getTime())}${reason}`, next }
}

function crowded({ name, hold, headAgeMs = 0, active, concurrency }: QueueFacts): Found | undefined {
  if (hold?.cause !== 'concurrency' || hold.group !== undefined || headAgeMs < CROWDED_MS) return undefined
  const most = concurrency === undefined ? '' : ` of ${concurrency.inForce}`
  return {
    level: 'warning',
    text: `${active}${most} run, the next waits ${formatDuration(headAgeMs)}`,
    next: `sluice top ${argument(name)} shows whether jobs end; sluice shape set ${argument(name)} --concurrency N --reason '…' lets more run`,
  }
}

function fedBack({ name, cause, concurrency, feedback }: QueueFacts): Found | undefined {
  const holds = cause === 'feedback' || concurrency?.cause === 'feedback' || feedback?.probing === true
  if (!holds) return undefined
  const text = feedback?.last?.reason || 'slowed by the downstream'
  return { level: 'warning', text, next: `sluice shape history ${argument(name)} has the answers of the downstream` }
}

function overridden({ name, at, shape }: QueueFacts): Found | undefined {
  const overrides = Object.entries(shape?.overrides ?? {})
  if (overrides.length === 0) return undefined
  const texts = overrides.map(([field, { by, reason, setAt, until }]) => {
    const age = formatDuration(Math.max(0, at.getTime() - setAt.getTime()))
    const end = until ? `ends in ${formatDuration(until.getTime() - at.getTime())}` : 'has no end'
    return `${field} by ${by} ${age} ago, ${end}${reason === '' ? '' : `: ${reason}`}`
  })
  const lasting = overrides.filter(([, { until }]) => until === undefined).map(([field]) => field)
  const fields = lasting.length > 0 ? lasting : overrides.map(([field]) => field)
  return {
    level: lasting.length > 0 ? 'warning' : 'note',
    text: texts.join('; '),
    next: `sluice shape clear ${argument(name)} ${fields.join(' ')} --reason '…' ends it`,
  }
}
