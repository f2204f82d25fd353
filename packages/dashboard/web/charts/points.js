import { CAUSES } from '../base/queue-text.js'

/**
 * @typedef {import('../wire.d.ts').Point} Point
 * @typedef {(number | null)[]} Values
 * @typedef {object} Figures the data of the charts, all at the same times
 * @property {number[]} at seconds since 1970
 * @property {Values} arrivals per second, as are departures, refused and dropped
 * @property {Values} departures
 * @property {Values} refused
 * @property {Values} dropped
 * @property {Values} completed per second, as are failedAttempts, failed and bypassed
 * @property {Values} failedAttempts
 * @property {Values} failed
 * @property {Values} bypassed
 * @property {Values} rate units per second
 * @property {Values} depth
 * @property {Values} latenessMean ms
 * @property {Values} latenessMax ms
 * @property {Values[]} held share of the time in which each of CAUSES held the head, 0 to 1
 * @property {[number, number][]} paused from and to, seconds since 1970
 */

/** What only grows. */
const TOTALS = /** @type {const} */ ([
  ...['accepted', 'departed', 'refused', 'dropped'],
  ...['completed', 'failedAttempts', 'failed', 'bypassed'],
])

/** Idle workers write less often. */
const IDLE_STEPS = 2
/** An interval longer than both is shown as a gap: no worker wrote samples. */
const GAP_MS = 60_000
const GAP_STEPS = 5

/** Each value is the mean over this many steps, and over more where few jobs leave, so that single jobs are no spikes. */
const MEAN_STEPS = 5
const MOST_STEPS = 30
const MEAN_JOBS = 10

/**
 * Computes what happened between totals.
 * @param {readonly Point[]} points oldest first
 * @param {number} stepMs usual time between two points
 * @returns {Figures}
 */
export function figuresOf(points, stepMs) {
  const figures = emptyFigures()
  const windowMs = meanOver(points, stepMs)
  /** What came without a gap before a point, oldest first. @type {Point[]} */
  let past = []
  for (const [i, point] of points.entries()) {
    const before = points[i - 1]
    if (!before) continue
    const ms = Date.parse(point.at) - Date.parse(before.at)
    if (ms <= 0) continue
    const isGap = ms > Math.max(GAP_MS, GAP_STEPS * stepMs) && !isSame(before, point)
    if (isGap || isAnew(before, point)) past = []
    past.push(before)
    if (isGap) addGap(figures, Date.parse(before.at) + stepMs)
    // The mean over an idle period is drawn from its beginning, not only at its end.
    else if (ms > IDLE_STEPS * stepMs) {
      const start = idleStart(before, point, stepMs / ms)
      addPoint(figures, start, firstOf(past, start, windowMs))
      past.push(start)
    }
    addPoint(figures, point, firstOf(past, point, windowMs))
  }
  return figures
}

/**
 * @param {readonly Point[]} points
 * @param {number} stepMs
 * @returns {number} ms over which the means are taken
 */
function meanOver(points, stepMs) {
  const [first, last] = [points[0], points.at(-1)]
  const jobs = first && last ? last.departed - first.departed : 0
  const ms = first && last ? Date.parse(last.at) - Date.parse(first.at) : 0
  const wanted = jobs > 0 ? (MEAN_JOBS * ms) / jobs : MOST_STEPS * stepMs
  return Math.min(MOST_STEPS * stepMs, Math.max(MEAN_STEPS * stepMs, wanted))
}

/**
 * @param {Point[]} past what is older than needed is dropped
 * @param {Point} point
 * @param {number} windowMs
 * @returns {readonly Point[]} the points of the time over which the mean is taken
 */
function firstOf(past, point, windowMs) {
  // A tenth more, since points are not exactly a step apart.
  const fromMs = Date.parse(point.at) - windowMs * 1.1
  while (past.length > 1 && Date.parse(/** @type {Point} */ (past[0]).at) < fromMs) past.shift()
  return past
}

/**
 * @param {Point} before
 * @param {Point} point
 * @returns {boolean} whether nothing happened between them: idle workers do not write
 */
function isSame(before, point) {
  const totals = /** @type {const} */ ([...TOTALS, 'starts', 'depth'])
  return totals.every((total) => before[total] === point[total]) && before.paused === point.paused
}

/**
 * @param {Point} before
 * @param {Point} point
 * @returns {boolean} whether the queue was made anew between them
 */
function isAnew(before, point) {
  return point.departed < before.departed || point.accepted < before.accepted
}

/**
 * @param {Point} before
 * @param {Point} point
 * @param {number} part of the time between them
 * @returns {Point} interpolated between them
 */
function idleStart(before, point, part) {
  /** @param {number} from @param {number} to */
  const between = (from, to) => from + (to - from) * part
  const totals = TOTALS.map((total) => [total, between(before[total], point[total])])
  const { heldMs } = point
  return {
    ...before,
    ...Object.fromEntries(totals),
    at: new Date(between(Date.parse(before.at), Date.parse(point.at))).toISOString(),
    paused: before.paused && point.paused,
    heldMs: /** @type {Point['heldMs']} */ (
      Object.fromEntries(CAUSES.map(({ cause }) => [cause, between(before.heldMs[cause], heldMs[cause])]))
    ),
  }
}

/** @returns {Figures} */
function emptyFigures() {
  return {
    at: [],
    arrivals: [],
    departures: [],
    refused: [],
    dropped: [],
    completed: [],
    failedAttempts: [],
    failed: [],
    bypassed: [],
    rate: [],
    depth: [],
    latenessMean: [],
    latenessMax: [],
    held: CAUSES.map(() => []),
    paused: [],
  }
}

/**
 * @param {Figures} figures
 * @param {Point} point
 * @param {readonly Point[]} past the points before it, over which means are taken
 */
function addPoint(figures, point, past) {
  const from = /** @type {Point} */ (past[0])
  const before = /** @type {Point} */ (past.at(-1))
  const ms = Date.parse(point.at) - Date.parse(from.at)
  /** @param {(typeof TOTALS)[number]} total */
  const perSecond = (total) => (point[total] < from[total] ? null : ((point[total] - from[total]) * 1000) / ms)
  const starts = point.starts - from.starts
  figures.at.push(Date.parse(point.at) / 1000)
  figures.arrivals.push(perSecond('accepted'))
  figures.departures.push(perSecond('departed'))
  figures.refused.push(perSecond('refused'))
  figures.dropped.push(perSecond('dropped'))
  figures.completed.push(perSecond('completed'))
  figures.failedAttempts.push(perSecond('failedAttempts'))
  figures.failed.push(perSecond('failed'))
  figures.bypassed.push(perSecond('bypassed'))
  figures.rate.push(point.ratePerSecond ?? null)
  figures.depth.push(point.depth)
  figures.latenessMean.push(starts > 0 ? Math.max(0, (point.latenessSumMs - from.latenessSumMs) / starts) : null)
  const longest = Math.max(point.latenessMaxMs, ...past.slice(1).map(({ latenessMaxMs }) => latenessMaxMs))
  figures.latenessMax.push(starts > 0 ? longest : null)
  for (const [i, { cause }] of CAUSES.entries()) {
    const part = (point.heldMs[cause] - from.heldMs[cause]) / ms
    figures.held[i]?.push(Math.min(1, Math.max(0, part)))
  }
  if (point.paused) addPause(figures, Date.parse(before.at) / 1000, Date.parse(point.at) / 1000)
}

/**
 * @param {Figures} figures
 * @param {number} from
 * @param {number} to
 */
function addPause({ paused }, from, to) {
  const last = paused.at(-1)
  if (last && last[1] >= from) last[1] = to
  else paused.push([from, to])
}

/**
 * @param {Figures} figures
 * @param {number} atMs
 */
function addGap({ at, held, paused: _, ...values }, atMs) {
  at.push(atMs / 1000)
  for (const list of [...Object.values(values), ...held]) list.push(null)
}

/**
 * @param {import('../wire.d.ts').Queue} queue
 * @param {number | undefined} ratePerSecond
 * @returns {Point} the sample that a worker would write now
 */
export function pointOf(queue, ratePerSecond) {
  return {
    at: queue.at,
    accepted: queue.acceptedTotal,
    departed: queue.departedTotal,
    refused: queue.refusedTotal,
    dropped: queue.droppedTotal,
    depth: queue.depth,
    waiting: queue.waiting,
    active: queue.active,
    ...(queue.headAgeMs !== undefined && { headAgeMs: queue.headAgeMs }),
    ...(ratePerSecond !== undefined && { ratePerSecond }),
    starts: queue.starts.count,
    latenessSumMs: queue.starts.latenessSumMs,
    latenessMaxMs: Math.max(0, ...queue.workers.map(({ latenessMaxMs }) => latenessMaxMs)),
    completed: queue.completedTotal,
    failed: queue.failedTotal,
    failedAttempts: queue.failedAttemptsTotal,
    bypassed: queue.bypassedTotal,
    heldMs: queue.heldMs,
    paused: queue.paused || queue.pausedUntil !== undefined,
  }
}
