import { h, setAttribute, setText } from '../base/dom.js'
import { count, duration, number, perSecond, plural, rate, unitsPerSecond } from '../base/format.js'
import { feedbackText, holdThatLasts, nowSentence } from '../base/hold-text.js'
import { bypassesText, concurrencyText, headAge, oldestText, rateCause, rateNow } from '../base/queue-text.js'
import { SplitBar } from '../base/split-bar.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {import('../base/flow.js').PerSecond} PerSecond
 */

/** @type {readonly (readonly [label: string, value: (queue: Queue, flow?: PerSecond) => string, note: (queue: Queue, flow?: PerSecond) => string])[]} */
const FACTS = [
  ['Rate now', rateNow, rateNote],
  ['Arrivals', (_queue, flow) => perSecond(flow?.arrivals), (queue) => `${count(queue.acceptedTotal)} in all`],
  ['Departures', (_queue, flow) => perSecond(flow?.departures), departuresNote],
  ['Refused', (_queue, flow) => perSecond(flow?.refusals), refusedNote],
  ['Head age', headAge, headNote],
  ['Running', runningNow, runningNote],
  ['Lateness, mean', latenessMean, (queue) => `${count(queue.starts.early)} early of ${count(queue.starts.count)}`],
  ['Failed attempts', (_queue, flow) => perSecond(flow?.failures), failedNote],
]

/** Current numbers of a queue, and how its jobs waited. */
export class Facts {
  #tiles = FACTS.map(([label]) => ({ label, value: h('dd'), note: h('dd', { class: 'muted small' }) }))
  #hold = h('p', { class: 'hold' })
  #feedback = h('p', { class: 'muted small' })
  #split = new SplitBar()
  #waited = h('p', { class: 'muted small' })
  element = h(
    'section',
    { class: 'card facts', 'aria-label': 'Now' },
    this.#hold,
    h(
      'dl',
      { class: 'tiles' },
      ...this.#tiles.map(({ label, value, note }) => h('div', { class: 'tile' }, h('dt', {}, label), value, note)),
    ),
    h('div', { class: 'waited' }, h('h2', { class: 'minor' }, 'What a job waited for'), this.#waited),
    this.#split.element,
    this.#feedback,
  )

  /**
   * @param {Queue} queue
   * @param {PerSecond | undefined} flow
   */
  show(queue, flow) {
    for (const [i, [, value, note]] of FACTS.entries()) {
      const tile = this.#tiles[i]
      if (!tile) continue
      setText(tile.value, value(queue, flow))
      setText(tile.note, note(queue, flow))
    }
    setText(this.#hold, nowSentence(queue))
    const isWrong = queue.conditions.some(({ name }) => name === 'Bypassed' || name === 'Failing')
    setAttribute(this.#hold, 'data-cause', isWrong ? 'failed' : holdThatLasts(queue)?.cause)
    setText(this.#feedback, feedbackText(queue))
    this.#split.show(waitedParts(queue))
    setText(this.#waited, waitedText(queue))
  }
}

/** @param {Queue} queue */
function rateNote(queue) {
  const { shape } = queue
  const cause = rateCause(queue)
  if (shape?.rate === undefined || shape.schedule || queue.cause === 'declared') return cause
  const set = `${rate(shape.rate)} set`
  return cause === '' ? set : `${cause} (${set})`
}

/**
 * @param {Queue} queue
 * @param {PerSecond} [flow]
 */
function departuresNote(queue, flow) {
  return bypassesText(queue, flow) || useOfRate(queue, flow)
}

/**
 * @param {Queue} queue
 * @param {PerSecond} [flow]
 */
function useOfRate(queue, flow) {
  const units = unitsPerSecond(queue.rate)
  if (!flow || units === undefined) return `${count(queue.departedTotal)} in all`
  return `${number((flow.departures * queue.meanCost * 100) / units)}% of the rate`
}

/**
 * @param {Queue} queue
 * @param {PerSecond} [flow]
 */
function refusedNote({ refusedTotal, droppedTotal, shadowRefusedTotal }, flow) {
  const drops = flow && flow.drops > 0 ? ` (${perSecond(flow.drops)})` : ''
  const dropped = droppedTotal > 0 ? `, ${count(droppedTotal)} dropped${drops}` : ''
  const shadow = shadowRefusedTotal > 0 ? `, ${count(shadowRefusedTotal)} would be` : ''
  return `${count(refusedTotal)} in all${dropped}${shadow}`
}

/** @param {Queue} queue */
function failedNote({ failing, completedTotal, failedTotal, failedAttemptsTotal }) {
  const share = failing === undefined ? '' : `${Math.round(failing.share * 100)}% in 5 min; `
  const jobs = `${plural(failedTotal, 'job')} permanently, ${count(completedTotal)} completed`
  return `${share}${count(failedAttemptsTotal)} in all, ${jobs}`
}

/** @param {Queue} queue */
function headNote(queue) {
  const parts = [
    oldestText(queue),
    `${count(queue.waiting)} waiting`,
    queue.delayed > 0 && `${count(queue.delayed)} delayed`,
  ]
  return parts.filter(Boolean).join(', ')
}

/** @param {Queue} queue */
function runningNow({ active, concurrency }) {
  return concurrency === undefined ? count(active) : `${count(active)} of ${count(concurrency.inForce)}`
}

/** @param {Queue} queue */
function runningNote(queue) {
  const workers = plural(queue.workers.length, 'worker')
  const { concurrency } = queue
  return concurrency === undefined || concurrency.set === concurrency.inForce
    ? workers
    : `${workers}; ${concurrencyText(queue)}`
}

/** @param {Queue} queue */
function latenessMean({ starts }) {
  return starts.count === 0 ? '–' : duration(starts.latenessSumMs / starts.count)
}

/**
 * Jobs that started are not all: where none does for a while, what holds the next one is a wait as well.
 * @param {Queue} queue
 * @returns {Queue['heldMs']} of one wait
 */
function waitedParts({ starts: { waits, waitedMs }, hold, headAgeMs, at }) {
  if (!hold || headAgeMs === undefined) return meanOf(waitedMs, waits)
  const heldMs = Math.min(headAgeMs, Math.max(0, Date.parse(at) - Date.parse(hold.since)))
  return meanOf({ ...waitedMs, [hold.cause]: waitedMs[hold.cause] + heldMs }, waits + 1)
}

/** @param {Queue} queue */
function waitedText({ starts: { waits, waitSumMs }, headAgeMs, waiting }) {
  if (headAgeMs === undefined || waiting === 0) {
    if (waits === 0) return 'No job has started yet.'
    return `${duration(waitSumMs / waits)} on average, over ${plural(waits, 'start')}.`
  }
  const still = `the next of ${count(waiting)} that still wait`
  if (waits === 0) return `No job has started yet: ${duration(headAgeMs)} so far for ${still}.`
  return `${duration((waitSumMs + headAgeMs) / (waits + 1))} on average, over ${plural(waits, 'start')} and ${still}.`
}

/**
 * @param {Queue['heldMs']} parts
 * @param {number} waits
 * @returns {Queue['heldMs']} of one wait
 */
function meanOf(parts, waits) {
  const means = Object.entries(parts).map(([cause, ms]) => [cause, waits === 0 ? 0 : ms / waits])
  return Object.fromEntries(means)
}
