import type { GroupState } from 'sluice'
import type {
  Condition,
  GroupHolder,
  HeldMs,
  Hold,
  QueueStatus,
  RedisState,
  ShardStatus,
  WorkerStatus,
} from 'sluice/inspect'
import {
  concurrencyText,
  countText,
  formatDuration,
  type GroupCounts,
  HOLD_CAUSES,
  keysText,
  plainText,
  urgencyOf,
} from 'sluice/internal'
import type { Cli } from './cli.ts'
import { redisConditions } from './redis-conditions.ts'

const NONE = '—'
const NUMBERS = new Intl.NumberFormat('en', { maximumFractionDigits: 2 })

/** A number for display: `12,345`, `0.25`; `—` for none. */
export function numberText(value: number | undefined): string {
  return value === undefined || !Number.isFinite(value) ? NONE : NUMBERS.format(value)
}

/** The part of a table's width that the column with a name may take. */
export const NAME_SHARE = 0.25

/** Untrusted text for a cell, cut in its middle: names and ids often differ at their ends. */
export function shortText(text: string, maxCharacters: number): string {
  const plain = plainText(text)
  const max = Math.floor(maxCharacters)
  if (plain.length <= max) return plain
  const end = Math.floor((max - 1) / 2)
  return `${plain.slice(0, max - 1 - end)}…${plain.slice(plain.length - end)}`
}

/** Untrusted text for a line, cut at its end. */
function cutText(text: string, maxCharacters: number): string {
  const plain = plainText(text)
  return plain.length <= maxCharacters ? plain : `${plain.slice(0, maxCharacters - 1)}…`
}

/** Maximum length of a reason in a table, in characters. */
const REASON_CHARACTERS = 60

/** Why a job failed, for a table. */
export function reasonText(reason: string): string {
  return plainText(reason.length > REASON_CHARACTERS ? `${reason.slice(0, REASON_CHARACTERS)}…` : reason)
}

/** How long a change lasts that was made just now. */
export function lastsText(ttlMs: number | undefined): string {
  return ttlMs === undefined ? 'until cleared' : `for ${formatDuration(ttlMs)}`
}

/** A line for each override of a group or of a value of a limit. */
export function overrideTexts(overrides: GroupState['overrides']): string[] {
  return Object.entries(overrides).map(([field, { by, reason, until }]) => {
    const lasts = until ? `until ${until.toISOString()}` : 'until it is cleared'
    return `${field} set by ${plainText(by)}, ${lasts}: ${plainText(reason)}`
  })
}

/** A value as indented JSON, below a heading. */
export function indentedJson(value: unknown): string {
  const text = JSON.stringify(value, null, 2) ?? 'nothing'
  return text
    .split('\n')
    .map((line) => `  ${plainText(line)}`)
    .join('\n')
}

/** What holds the head of a queue; if no job is ready, what the jobs wait for. */
export function heldByText({ hold, delayed, waitingChildren }: QueueStatus): string {
  if (hold) return holdText(hold)
  if (delayed > 0) return 'delay'
  return waitingChildren > 0 ? 'children' : NONE
}

export function holdText(hold: Hold): string {
  const closed = hold.closed && `closed until ${clockText(hold.closed)}`
  if (closed && hold.cause === 'rate') return `the schedule of its rate (${closed})`
  return `${holderOf(hold)}${closed ? `, ${closed}` : ''}`
}

function holderOf(hold: Hold): string {
  const cause = hold.cause === 'limits' && hold.limit !== undefined ? `limit ${plainText(hold.limit)}` : hold.cause
  if (hold.keys) return `${cause} of ${plainText(keysText(hold.keys))}`
  if (hold.group === undefined) return cause
  return `${hold.limit === undefined ? `the ${cause}` : cause} of group ${plainText(hold.group)}`
}

/** A time on the clock that a schedule follows: `Mon 08:00 Europe/Berlin`. */
function clockText({ until, timeZone }: NonNullable<Hold['closed']>): string {
  const parts = { weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const
  return `${until.toLocaleString('en-GB', { ...parts, timeZone }).replace(',', '')} ${timeZone}`
}

/** What holds a place of a group, and when that ends if its worker has died. */
export function holderText(holder: GroupHolder, at: Date): string {
  const { jobId, queue, state, dueAt, lockEndsAt, worker, isSilent } = holder
  if (state !== 'running') {
    const until = dueAt ? ` until ${dueAt.toISOString()}` : ''
    return plainText(
      `job ${jobId}, which is ${state === 'waiting-children' ? 'waiting for its children' : state}${until}`,
    )
  }
  const { name, id, host, pid, seenAt } = worker
  const place = host === undefined ? '' : ` (${host}, process ${pid})`
  const silent = isSilent && seenAt ? `, silent for ${formatDuration(at.getTime() - seenAt.getTime())}` : ''
  const lock = lockEndsAt
    ? `its lock ends at ${lockEndsAt.toISOString()}${isSilent ? '' : ' unless it is renewed'}`
    : 'its lock has ended: the next check for stalled jobs frees the place'
  const elsewhere = queue === undefined ? '' : ` of queue ${queue.slice(0, -1)}`
  return plainText(`job ${jobId}${elsewhere} of worker ${name ?? id ?? 'unknown'}${place}${silent}; ${lock}`)
}

export function rateText({ rate }: Pick<QueueStatus, 'rate'>): string {
  return rate ?? 'none'
}

/** A depth above the capacity is marked as such. */
export function depthText({ depth, capacity }: Pick<QueueStatus, 'depth' | 'capacity'>): string {
  if (capacity === undefined) return numberText(depth)
  const over = depth > capacity ? ` (${numberText(depth - capacity)} over)` : ''
  return `${numberText(depth)}/${numberText(capacity)}${over}`
}

/** How long the head has been ready, and the oldest job if that is another one. */
export function ageText({ headAgeMs, oldestAgeMs }: Pick<QueueStatus, 'headAgeMs' | 'oldestAgeMs'>): string {
  const isOlder = headAgeMs !== undefined && oldestAgeMs !== undefined && oldestAgeMs > headAgeMs
  return `${formatDuration(headAgeMs)}${isOlder ? ` (oldest ${formatDuration(oldestAgeMs)})` : ''}`
}

/** Colours causes that are out of the ordinary. */
export function causeText({ colors }: Cli, { cause, unread }: Pick<QueueStatus, 'cause' | 'unread'>): string {
  if (unread?.includes('queue')) return colors.yellow('unread')
  if (unread) return colors.yellow(`${cause}, ${unreadText(unread)}`)
  if (cause === 'paused' || cause === 'meter paused' || cause === 'closed') return colors.yellow(cause)
  return cause === 'feedback' || cause === 'rampUp' || cause === 'override' ? colors.cyan(cause) : cause
}

/** Which parts of a sharded queue did not answer: the numbers lack them. */
function unreadText(unread: NonNullable<QueueStatus['unread']>): string {
  const shards = unread.filter((part) => part !== 'head')
  const parts = [
    ...(unread.includes('head') ? ['head'] : []),
    ...(shards.length === 0 ? [] : [`${shards.length === 1 ? 'shard' : 'shards'} ${shards.join(', ')}`]),
  ]
  return `without ${parts.join(' and ')}`
}

/** The names of what is out of the ordinary about a queue, in the colours of their levels; `—` if nothing is. */
function stateText(cli: Cli, { conditions }: Pick<QueueStatus, 'conditions'>): string {
  return conditions.map(({ name, level }) => paintOf(cli, level)(name)).join(', ') || NONE
}

/** The same in a few characters: the worst, and how many more there are. */
export function briefStateText(cli: Cli, { conditions }: Pick<QueueStatus, 'conditions'>): string {
  const more = conditions.length > 1 ? ` +${conditions.length - 1}` : ''
  return `${stateText(cli, { conditions: conditions.slice(0, 1) })}${more}`
}

function paintOf({ colors }: Cli, level: Condition['level']): (text: string) => string {
  return { error: colors.red, warning: colors.yellow, note: colors.cyan }[level]
}

/** Of how many queues it is said below their table why they need a look. */
const EXPLAINED = 10

/** Queues that need a look, the worst first. */
function needLook<Q extends QueueStatus>(queues: readonly Q[]): Q[] {
  const marked = queues.filter(({ conditions }) => conditions.some(({ level }) => level !== 'note'))
  return marked.toSorted((one, other) => urgencyOf(other.conditions) - urgencyOf(one.conditions))
}

/** Lines that say why queues need a look and what to do, the worst first; none if none needs one. */
export function needLookText(cli: Cli, queues: readonly QueueStatus[]): string[] {
  const marked = needLook(queues)
  const lines = marked.slice(0, EXPLAINED).flatMap((status) => {
    return [cli.colors.bold(plainText(status.name)), ...conditionLines(cli, status.conditions)]
  })
  const rest = marked.length - EXPLAINED
  return rest > 0 ? [...lines, cli.colors.dim(`… ${countText(rest, 'more queue')} to look at: sluice doctor`)] : lines
}

/** The same of Redis itself. */
export function redisLookText(cli: Cli, redis: RedisState, queues: readonly QueueStatus[]): string[] {
  const conditions = redisConditions(redis, queues)
  return conditions.length === 0 ? [] : [cli.colors.bold('Redis'), ...conditionLines(cli, conditions)]
}

/** Of how many queues the screen of `top` says why they need a look. */
const EXPLAINED_LIVE = 5

/** The same in one line for each, cut at its end: the worst of Redis, and that of each queue. */
export function briefLookText(
  cli: Cli,
  redis: RedisState,
  queues: readonly QueueStatus[],
  maxColumns: number,
): string[] {
  const line = (subject: string, { name, level, text }: NamedCondition) => {
    const start = `${shortText(subject, maxColumns * NAME_SHARE)}  `
    const rest = cutText(`${name}: ${text}`, maxColumns - start.length)
    return start + paintOf(cli, level)(rest)
  }
  const marked = needLook(queues)
  const lines = [
    ...redisConditions(redis, queues).map((condition) => line('Redis', condition)),
    ...marked.slice(0, EXPLAINED_LIVE).flatMap(({ name, conditions }) => {
      const worst = conditions.find(({ level }) => level !== 'note')
      return worst ? [line(name, worst)] : []
    }),
  ]
  const rest = marked.length - EXPLAINED_LIVE
  return rest > 0 ? [...lines, cli.colors.dim(`… ${countText(rest, 'more queue')} to look at: sluice status`)] : lines
}

type NamedCondition = Pick<Condition, 'level' | 'text' | 'next'> & { readonly name: string }

/** Each condition, why it holds, and the next command. */
function conditionLines(cli: Cli, conditions: readonly NamedCondition[]): string[] {
  return conditions.flatMap(({ name, level, text, next }) => {
    const line = `  ${paintOf(cli, level)(name)}: ${plainText(text)}`
    return next === '' ? [line] : [line, cli.colors.dim(`    → ${plainText(next)}`)]
  })
}

/** The part of a table's width that what holds the head may take. */
export const CAUSE_SHARE = 0.2
/** Columns of {@link fleetTable} that are left out on a narrow terminal, the least important first. */
const OMITTED_OF_STATUS = [
  'completed',
  'active',
  'refused',
  'cause',
  'workers',
  'failed',
  'rate',
  'held by',
  'head age',
]

/** The queues, one line each. */
export function fleetTable(cli: Cli, queues: readonly QueueStatus[], maxColumns = Number.POSITIVE_INFINITY): string {
  const now = ['queue', 'state', 'rate', 'cause', 'depth', 'active', 'head age', 'held by', 'workers']
  const head = [...now, 'refused', 'completed', 'failed']
  return cli.table(
    head,
    queues.map((status) => [
      shortText(status.name, maxColumns * NAME_SHARE),
      stateText(cli, status),
      rateText(status),
      causeText(cli, status),
      depthText(status),
      numberText(status.active),
      ageText(status),
      shortText(heldByText(status), maxColumns * CAUSE_SHARE),
      numberText(status.workers.length),
      numberText(status.refusedTotal),
      numberText(status.completedTotal),
      failedText(cli, status),
    ]),
    { maxColumns, omitted: OMITTED_OF_STATUS },
  )
}

/** Attempts that failed so far, and their share of the last five minutes where that is high. */
function failedText({ colors }: Cli, { failedAttemptsTotal, failing }: QueueStatus): string {
  const text = numberText(failedAttemptsTotal)
  return failing ? colors.red(`${text} (${Math.round(failing.share * 100)}%)`) : text
}

/** One queue in detail. */
export function queueText(cli: Cli, status: QueueStatus): string {
  const name = cli.colors.bold(plainText(status.name))
  const parts = [name, ...conditionLines(cli, status.conditions), cli.table([], detailRows(cli, status))]
  if (status.shards) parts.push('', shardTable(cli, status.shards))
  if (status.workers.length > 0) parts.push('', workerTable(cli, [status]))
  return parts.join('\n')
}

/** What each shard has of the whole, and what it holds. */
function shardTable(cli: Cli, shards: readonly ShardStatus[]): string {
  return cli.table(
    ['shard', 'rate', 'cause', 'depth', 'waiting', 'active', 'held by'],
    shards.map((shard) => [
      String(shard.shard),
      rateText(shard),
      causeText(cli, shard),
      depthText(shard),
      numberText(shard.waiting),
      `${numberText(shard.active)}${shard.concurrency === undefined ? '' : ` of ${shard.concurrency}`}`,
      shard.hold ? holdText(shard.hold) : NONE,
    ]),
  )
}

function detailRows(cli: Cli, status: QueueStatus): string[][] {
  const { shape, starts } = status
  const waiting = [`waiting ${numberText(status.waiting)}`, `delayed ${numberText(status.delayed)}`]
  if (status.waitingChildren > 0) waiting.push(`waiting for children ${numberText(status.waitingChildren)}`)
  return [
    ['rate', `${rateText(status)} (${causeText(cli, status)})`],
    ...(shape ? [['mode', shape.mode]] : []),
    ['depth', `${depthText(status)} (${waiting.join(', ')})`],
    ...overRows(status),
    ...(status.groups ? [['groups', groupsText(status.groups)]] : []),
    ['active', `${numberText(status.active)}${status.concurrency ? ` of ${status.concurrency.inForce}` : ''}`],
    ...(status.concurrency ? [['concurrency', concurrencyText(status.concurrency)]] : []),
    ['head age', ageText(status)],
    ['held by', holdDetail(status)],
    ['held so far', heldText(status.heldMs)],
    ['next start', nextText(status)],
    ['bucket', `${numberText(status.level)}${shape ? ` of ${shape.burst}` : ''}`],
    ['totals', totalsText(status)],
    ['starts', `${numberText(starts.count)}, mean lateness ${latenessText(starts)}, early ${numberText(starts.early)}`],
  ]
}

/** How many groups have waiting jobs, by what holds them. */
function groupsText({ waiting, limited, maxed, paused }: GroupCounts): string {
  return `${numberText(waiting)} in line, ${numberText(limited)} held by their rate or limits, ${numberText(maxed)} by their running jobs, ${numberText(paused)} paused`
}

/** Why a queue may hold more jobs than its capacity. */
function overRows({ depth, capacity, shape }: QueueStatus): string[][] {
  if (capacity === undefined || depth <= capacity) return []
  const lowered = shape?.overrides.capacity ? 'an override may have lowered the capacity; ' : ''
  const others = 'retried jobs, redriven jobs and jobs added past Sluice take a place without asking'
  return [['over', `${countText(depth - capacity, 'job')} more than the capacity: ${lowered}${others}`]]
}

function holdDetail(status: QueueStatus): string {
  const { hold, at, nextDueAt, paused } = status
  if (hold) return `${holdText(hold)} for ${formatDuration(msBetween(hold.since, at))}`
  if (!nextDueAt) return heldByText(status)
  const then = paused ? '; BullMQ holds the queue then' : ''
  return `delay: the first is due in ${formatDuration(msBetween(at, nextDueAt))}${then}`
}

/** When the next job may start. The end of BullMQ's pause or of a running job is not known. */
function nextText({ nextDepartureAt, nextDueAt, at, hold, paused }: QueueStatus): string {
  if (paused) return 'once it is resumed'
  if (hold?.cause === 'concurrency') return 'once a running job has ended'
  if (!nextDepartureAt) return NONE
  const ms = Math.max(msBetween(at, nextDepartureAt), nextDueAt ? msBetween(at, nextDueAt) : 0)
  return ms <= 0 ? 'now' : `in ${formatDuration(ms)}`
}

function totalsText(status: QueueStatus): string {
  const counts = [
    `accepted ${numberText(status.acceptedTotal)}`,
    `departed ${numberText(status.departedTotal)}`,
    `refused ${numberText(status.refusedTotal)}`,
    `dropped ${numberText(status.droppedTotal)}`,
    `completed ${numberText(status.completedTotal)}`,
    `failed permanently ${numberText(status.failedTotal)}`,
    `failed attempts ${numberText(status.failedAttemptsTotal)}`,
    ...(status.bypassedTotal > 0 ? [`past the meter ${numberText(status.bypassedTotal)}`] : []),
  ]
  return counts.join(', ')
}

function latenessText({ count, latenessSumMs }: QueueStatus['starts']): string {
  return formatDuration(count === 0 ? undefined : latenessSumMs / count)
}

/** How a time divides into causes; causes without a share are left out. */
function heldText(held: HeldMs): string {
  const shares = HOLD_CAUSES.filter((cause) => held[cause] > 0)
  return shares.length === 0 ? NONE : shares.map((cause) => `${cause} ${formatDuration(held[cause])}`).join(', ')
}

/** Columns of {@link workerTable}, the least important first. */
const OMITTED_OF_WORKERS = ['started', 'held', 'clock err', 'rtt', 'loop', 'queue', 'late max']

/** The workers of some queues, one line each. */
export function workerTable(cli: Cli, queues: readonly QueueStatus[], maxColumns = Number.POSITIVE_INFINITY): string {
  const head = [
    'worker',
    'queue',
    'running',
    'held',
    'started',
    'starts/s',
    'late max',
    'rtt',
    'clock err',
    'loop',
    'state',
  ]
  const rows = queues.flatMap((status) =>
    status.workers.map((worker) => workerRow(cli, status.name, worker, maxColumns)),
  )
  return cli.table(head, rows, { maxColumns, omitted: OMITTED_OF_WORKERS })
}

function workerRow({ colors }: Cli, queue: string, worker: WorkerStatus, maxColumns: number): string[] {
  const name = worker.name === undefined ? '' : ` ${worker.name}`
  return [
    shortText(`${worker.host}:${worker.pid}${name}`, maxColumns * NAME_SHARE),
    shortText(queue, maxColumns * NAME_SHARE),
    `${worker.running}/${worker.concurrency}`,
    numberText(worker.held),
    numberText(worker.started),
    numberText(worker.ratePerSecond),
    formatDuration(worker.latenessMaxMs),
    formatDuration(worker.roundTripMs),
    formatDuration(worker.clockErrorMs),
    `${Math.round(worker.loopUtilisation * 100)}%`,
    worker.state === 'running' ? worker.state : colors.yellow(worker.state),
  ]
}

function msBetween(from: Date, to: Date): number {
  return to.getTime() - from.getTime()
}
