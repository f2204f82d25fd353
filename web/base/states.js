import { count, duration, time } from './format.js'
import { areAllHeld, fullText, heldGroupsText, placesText } from './queue-text.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {{ kind: 'paused' | 'feedback' | 'override' | 'shadow' | 'full', label: string, title: string }} State
 */

/** The oldest job starves where it has waited this long, and so many times as long as the one that leaves next. */
const STARVING_MS = 60_000
const STARVING_TIMES = 10
/** Where the limit on running jobs holds the next one for this long, they may hang. */
const CROWDED_MS = 60_000
/** So they may where workers have not asked for a job for this long. */
const UNTAKEN_MS = 60_000

/**
 * What may be out of the ordinary about a queue, what needs a look first at the top; the words and the order are those
 * of `labelsOf` of `src/dashboard/fleet-page.ts`. Each gives why, or undefined where it is as usual.
 * @type {readonly (readonly [label: string, kind: State['kind'], why: (queue: Queue) => string | undefined])[]}
 */
const STATES = [
  ['Unread', 'full', unreadText],
  ['No worker', 'full', workersText],
  ['Not taken', 'full', untakenText],
  ['Full', 'full', (queue) => fullText(queue) || undefined],
  ['Starving', 'full', starvingText],
  ['Groups held', 'paused', groupsText],
  ['Paused', 'paused', pauseText],
  ['At concurrency', 'feedback', crowdedText],
  ['Feedback', 'feedback', feedbackText],
  ['Override', 'override', overrideText],
  ['Shadow', 'shadow', ({ shape }) => textIf(shape?.mode === 'shadow', 'nothing is held, only counted')],
  ['Off', 'shadow', ({ shape }) => textIf(shape?.mode === 'off', 'nothing is held or counted')],
]

/**
 * @param {Queue} queue
 * @returns {State[]} what is out of the ordinary, what needs a look first at the top
 */
export function statesOf(queue) {
  return STATES.flatMap(([label, kind, why]) => {
    const title = why(queue)
    return title === undefined ? [] : [{ kind, label, title }]
  })
}

/**
 * @param {readonly State[]} states
 * @returns {number} greater where a look is needed sooner; 0 where all is as usual
 */
export function urgencyOf(states) {
  return STATES.reduce((sum, [label]) => 2 * sum + Number(states.some((state) => state.label === label)), 0)
}

/** @param {Queue} queue */
function unreadText({ unread }) {
  if (unread?.includes('queue')) return 'its node of Redis did not answer: nothing is known of it'
  const parts = unread?.map((part) => (part === 'head' ? 'its head' : `shard ${part}`))
  return parts && `${parts.join(', ')} did not answer: the numbers lack what is there`
}

/** @param {Queue} queue */
function workersText(queue) {
  const lacks = queue.waiting > 0 && queue.workers.length === 0 && !areAllHeld(queue)
  return textIf(lacks, 'jobs wait, and no worker has reported')
}

/** @param {Queue} queue */
function untakenText(queue) {
  const { hold, at, workers } = queue
  if (hold?.cause !== 'workers' || workers.length === 0 || areAllHeld(queue)) return undefined
  const sinceMs = Date.parse(at) - Date.parse(hold.since)
  return textIf(sinceMs >= UNTAKEN_MS, `${placesText(queue)}; the next job waits ${duration(sinceMs)}`)
}

/**
 * @param {boolean} is
 * @param {string} text
 */
function textIf(is, text) {
  return is ? text : undefined
}

/** @param {Queue} queue */
function starvingText({ headAgeMs, oldestAgeMs }) {
  if (headAgeMs === undefined || oldestAgeMs === undefined) return undefined
  if (oldestAgeMs < Math.max(STARVING_MS, STARVING_TIMES * headAgeMs)) return undefined
  return `the oldest job waits for ${duration(oldestAgeMs)}, the next one for ${duration(headAgeMs)}`
}

/** @param {Queue} queue */
function groupsText({ groups }) {
  if (!groups || groups.paused + groups.maxed === 0) return undefined
  return heldGroupsText(groups)
}

/** @param {Queue} queue */
function crowdedText({ hold, headAgeMs = 0, active, concurrency }) {
  if (hold?.cause !== 'concurrency' || hold.group !== undefined || headAgeMs < CROWDED_MS) return undefined
  const most = concurrency === undefined ? '' : ` of ${count(concurrency.inForce)}`
  return `${count(active)}${most} run, the next waits ${duration(headAgeMs)}`
}

/** @param {Queue} queue */
function overrideText({ shape }) {
  const texts = Object.entries(shape?.overrides ?? {}).map(
    ([field, { by, reason }]) => `${field} by ${by}${reason === '' ? '' : `: ${reason}`}`,
  )
  return texts.length === 0 ? undefined : texts.join('; ')
}

/** @param {Queue} queue */
function pauseText({ paused, pausedUntil, pauseReason }) {
  if (paused) return 'until it is resumed'
  if (pausedUntil === undefined) return undefined
  return `until ${time(pausedUntil)}${pauseReason === undefined ? '' : `: ${pauseReason}`}`
}

/** @param {Queue} queue */
function feedbackText({ cause, concurrency, feedback }) {
  const holds = cause === 'feedback' || concurrency?.cause === 'feedback' || feedback?.probing
  return holds ? (feedback?.last?.reason ?? 'slowed by the downstream') : undefined
}
