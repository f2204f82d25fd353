import { count, duration, plural, time } from './format.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {{ kind: 'paused' | 'feedback' | 'override' | 'shadow' | 'full', label: string, title: string }} State
 */

/** The oldest job starves where it has waited this long, and so many times as long as the one that leaves next. */
const STARVING_MS = 60_000
const STARVING_TIMES = 10

/**
 * What may be out of the ordinary about a queue, what needs a look first at the top; the words and the order are those
 * of `labelsOf` of `src/dashboard/fleet-page.ts`. Each gives why, or undefined where it is as usual.
 * @type {readonly (readonly [label: string, kind: State['kind'], why: (queue: Queue) => string | undefined])[]}
 */
const STATES = [
  [
    'No worker',
    'full',
    ({ waiting, workers }) => textIf(waiting > 0 && workers.length === 0, 'jobs wait, and no worker has reported'),
  ],
  ['Full', 'full', (queue) => textIf(isFull(queue), 'new jobs are refused')],
  ['Starving', 'full', starvingText],
  ['Groups held', 'paused', groupsText],
  ['Paused', 'paused', pauseText],
  ['Feedback', 'feedback', feedbackText],
  ['Override', 'override', ({ shape }) => Object.keys(shape?.overrides ?? {}).join(', ') || undefined],
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
 * @param {Queue} queue
 * @returns {number} greater where a look is needed sooner; 0 where all is as usual
 */
export function urgencyOf(queue) {
  return STATES.reduce((sum, [, , why]) => 2 * sum + Number(why(queue) !== undefined), 0)
}

/** @param {Queue} queue */
function isFull(queue) {
  return queue.capacity !== undefined && queue.depth >= queue.capacity
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
  const parts = [
    groups.paused > 0 && `${plural(groups.paused, 'group')} paused`,
    groups.maxed > 0 && `${plural(groups.maxed, 'group')} held by running jobs`,
    groups.limited > 0 && `${count(groups.limited)} by their rate`,
  ]
  return parts.filter(Boolean).join(', ')
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
