import { jobActions } from '../actions/job-actions.js'
import { ApiError, getExplanation, getJob } from '../base/api.js'
import { openDialog } from '../base/dialog.js'
import { h, setAttribute, setText } from '../base/dom.js'
import { count, duration, number, time } from '../base/format.js'
import { holdSentence, keysText, placeHolderText } from '../base/hold-text.js'
import { SplitBar } from '../base/split-bar.js'
import { JobRecord } from './job-record.js'

/** @typedef {import('../wire.d.ts').Explained} Explained */

const REFRESH_MS = 2000
/** Of the jobs that hold the places of its group, so many are named. */
const HOLDERS = 3

/**
 * Explains why a job has not started, when it may, or what it waited for, and shows what it left behind: in a dialog,
 * which refreshes until the job has completed or is gone.
 * @param {string} queue
 * @param {string} id
 * @param {object} terms
 * @param {boolean} terms.mayChange whether it can be retried, removed, promoted and cancelled here
 * @param {() => readonly string[]} terms.deadQueues the known queues of dead letters
 * @param {() => void} terms.onClose
 */
export function explainJob(queue, id, { mayChange, deadQueues, onClose }) {
  const answer = new Answer()
  const actions = jobActions(queue, id, deadQueues)
  const record = new JobRecord()
  let isOpen = true
  const ask = async () => {
    const found = await Promise.all([getExplanation(queue, id), getJob(queue, id)]).catch((error) => error)
    if (!isOpen) return
    const [explained, job] = found instanceof Error ? [] : found
    if (explained) answer.show(explained)
    else answer.fail(found, id)
    if (job) record.show(job)
    if (mayChange) actions.show(explained?.state)
    const isOver = found instanceof ApiError ? found.status === 404 : explained?.state === 'completed'
    if (!isOver) setTimeout(() => isOpen && ask(), REFRESH_MS)
  }
  openDialog(`Job ${id}`, {
    body: h('div', {}, actions.element, answer.element, record.element),
    className: 'explain',
    onClose: () => {
      isOpen = false
      onClose()
    },
  })
  void ask()
}

class Answer {
  #sentence = h('p', { class: 'hold' }, 'Looking')
  #facts = h('dl', { class: 'facts-list' })
  #waited = h('p')
  #split = new SplitBar()
  #assumptions = h('ul', { class: 'muted small' })
  #assumed = h('div', { hidden: true }, h('h3', {}, 'The estimate assumes'), this.#assumptions)
  #rest = h(
    'div',
    { hidden: true },
    this.#facts,
    h('h3', {}, 'How the wait divides'),
    this.#waited,
    this.#split.element,
    this.#assumed,
  )
  element = h('div', {}, this.#sentence, this.#rest)

  /**
   * @param {Error} error
   * @param {string} id
   */
  fail(error, id) {
    const isUnknown = error instanceof ApiError && error.status === 404
    setText(
      this.#sentence,
      isUnknown ? `There is no job ${id} in this queue: it may have been removed.` : error.message,
    )
  }

  /** @param {Explained} found */
  show(found) {
    this.#rest.hidden = false
    setText(this.#sentence, sentenceOf(found))
    setAttribute(this.#sentence, 'data-cause', found.state === 'failed' ? 'failed' : found.hold?.cause)
    this.#facts.replaceChildren(...factsOf(found).flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]))
    setText(
      this.#waited,
      `${duration(found.waitedMs)}, from ${time(found.readyAt)} to ${found.startedAt === undefined ? 'now' : time(found.startedAt)}:`,
    )
    this.#split.show(found.parts)
    this.#assumed.hidden = found.assumptions.length === 0
    this.#assumptions.replaceChildren(...found.assumptions.map((text) => h('li', {}, text)))
  }
}

/** @param {Explained} found */
function sentenceOf({ state, hold, startedAt }) {
  if (state === 'active') return `It has been running since ${time(startedAt)}.`
  if (state === 'completed') return 'It has completed.'
  if (state === 'failed') return 'It has failed.'
  if (state === 'waiting-children') return 'It waits for its children.'
  if (hold) return holdSentence(hold, 'it')
  return state === 'delayed' ? 'Its delay is not over.' : 'Nothing holds it: a worker is about to take it.'
}

/**
 * @param {Explained} found
 * @returns {[string, string][]}
 */
function factsOf(found) {
  const { name, state, addedAt, readyAt, startedAt, startsAt, ahead, isAheadAtLeast, cost, costs, at } = found
  const { throttledFor, failedReason, group, keys, lane, holders } = found
  const starts =
    startsAt === undefined
      ? 'not known'
      : `${time(startsAt)}${isAheadAtLeast ? ', no sooner unless settled costs give units back' : ''}, in ${duration(Math.max(0, Date.parse(startsAt) - Date.parse(at)))}`
  return [
    ['Name', name],
    ['State', state === 'prioritized' && group !== undefined ? 'waiting in its group' : state],
    ['Added', time(addedAt)],
    ...(readyAt === addedAt ? [] : [/** @type {[string, string]} */ (['Ready', time(readyAt)])]),
    [
      'Cost',
      [number(cost), ...Object.entries(costs ?? {}).map(([unit, units]) => `${unit} ${number(units)}`)].join(', '),
    ],
    ...(group === undefined
      ? []
      : [
          /** @type {[string, string]} */ (['Group', `${group.id}: ${count(group.ahead)} of its jobs before this one`]),
        ]),
    ...(keys === undefined ? [] : [/** @type {[string, string]} */ (['Keys', keysText(keys)])]),
    ...(lane === undefined
      ? []
      : [/** @type {[string, string]} */ (['Lane', `${count(lane.ahead)} of its jobs before this one`])]),
    ...holders
      .slice(0, HOLDERS)
      .map((holder) => /** @type {[string, string]} */ (['Place held by', placeHolderText(holder)])),
    ...(throttledFor === undefined ? [] : [/** @type {[string, string]} */ (['Throttled for', throttledFor])]),
    ...(failedReason === undefined ? [] : [/** @type {[string, string]} */ (['Reason', failedReason])]),
    ...(startedAt === undefined
      ? /** @type {[string, string][]} */ ([
          ['Ahead of it', ahead === undefined ? 'not known' : `${isAheadAtLeast ? 'at least ' : ''}${count(ahead)}`],
          ['Estimated start', starts],
        ])
      : /** @type {[string, string][]} */ ([['Started', time(startedAt)]])),
  ]
}
