import { getJobs } from '../base/api.js'
import { h } from '../base/dom.js'
import { count } from '../base/format.js'
import { DeadLetters } from './dead-letters.js'
import { Failed } from './failed.js'
import { JOB_STATES, jobColumns } from './job-columns.js'
import { Paged } from './paged.js'
import { Tabs } from './tabs.js'

const REFRESH_MS = 5000
/** The tab that is open at first is the first of these that has jobs. @type {readonly string[]} */
const WAITING = ['waiting', 'prioritized', 'delayed']
/** Where a list has no job. @type {Readonly<Record<string, string>>} */
const EMPTY = {
  waiting: 'No job waits without a priority or a group.',
  prioritized: 'No job waits with a priority or in a group.',
}
/** Dead letters are counted once in so many refreshes: no event reports them. */
const DEAD_EVERY = 6

/** The jobs of a queue by state, and its dead letters: the visible list is refreshed from time to time. */
export class Jobs {
  #lists
  #tabs
  #timer
  #turns = 0
  #isOpened = false
  #job = h('input', { id: 'explain-id', required: true, autocomplete: 'off', size: 14 })
  dead
  element

  /**
   * @param {string} name of the queue
   * @param {import('./job-columns.js').RowTerms} rows
   */
  constructor(name, rows) {
    this.dead = new DeadLetters(name, rows, (total) => this.#tabs.count(JOB_STATES.length, count(total)))
    const deadQueues = () => this.dead.queues
    const lists = JOB_STATES.map(({ state, label, columns }) => ({
      id: state,
      label,
      list:
        state === 'failed'
          ? new Failed(name, rows, { columns: jobColumns(columns, rows), deadQueues })
          : listOf(name, { state, label, columns, rows }),
    }))
    const all = [...lists, { id: 'dead', label: 'Dead letters', list: this.dead }]
    this.#lists = all.map(({ list }) => list)
    this.#tabs = new Tabs(
      'Jobs by state',
      all.map(({ id, label, list }) => ({
        id,
        label,
        panel: h('div', { class: 'panel' }, list.element),
        onShow: () => list.refresh(),
      })),
    )
    this.#timer = setInterval(() => this.#refresh(), REFRESH_MS)
    this.element = h(
      'section',
      { class: 'card', 'aria-labelledby': 'jobs-title' },
      h('div', { class: 'section-head' }, h('h2', { id: 'jobs-title' }, 'Jobs'), this.#form(rows.explain)),
      this.#tabs.element,
    )
  }

  /** @param {import('../wire.d.ts').Queue} status */
  show(status) {
    for (const [i, { state }] of JOB_STATES.entries()) {
      this.#tabs.count(i, count(countOf(status, state)))
      if (state === 'prioritized') this.#tabs.rename(i, inGroupsText(status))
    }
    this.dead.show(status)
    const some = JOB_STATES.findIndex(({ state }) => WAITING.includes(state) && countOf(status, state) > 0)
    if (!this.#isOpened) this.#tabs.suggest(Math.max(0, some))
    this.#isOpened = true
  }

  /** Settles when the open list has been read. */
  get read() {
    return this.#tabs.read
  }

  close() {
    clearInterval(this.#timer)
  }

  #refresh() {
    const list = this.#lists[this.#tabs.shown]
    // Rows must not move while the user is about to open one.
    if (list && !document.hidden && !list.hasFocus) list.refresh()
    this.#turns += 1
    if (!document.hidden && list !== this.dead && this.#turns % DEAD_EVERY === 0) this.dead.refresh()
  }

  /** @param {(id: string) => void} explain */
  #form(explain) {
    const onsubmit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault()
      explain(this.#job.value.trim())
    }
    const label = h('label', { for: 'explain-id' }, 'Explain job')
    return h('form', { class: 'toolbar', onsubmit }, label, this.#job, h('button', { type: 'submit' }, 'Explain'))
  }
}

/**
 * BullMQ keeps the waiting jobs of groups among those with a priority.
 * @param {import('../wire.d.ts').Queue} status
 */
function inGroupsText({ prioritized, grouped }) {
  if (grouped === undefined) return 'Prioritized'
  return prioritized > grouped ? 'In groups, prioritized' : 'In groups'
}

/**
 * @param {import('../wire.d.ts').Queue} status
 * @param {(typeof JOB_STATES)[number]['state']} state
 */
function countOf(status, state) {
  if (state === 'waiting') return status.waiting - status.prioritized
  if (state === 'completed') return status.completedKept
  if (state === 'failed') return status.failedKept
  return state === 'waiting-children' ? status.waitingChildren : status[state]
}

/**
 * @param {string} name
 * @param {{ state: string, label: string, columns: readonly import('./job-columns.js').ColumnName[], rows: import('./job-columns.js').RowTerms }} terms
 */
function listOf(name, { state, label, columns, rows }) {
  const terms = {
    columns: jobColumns(columns, rows),
    key: (/** @type {import('../wire.d.ts').Job} */ { id }) => id,
    empty: EMPTY[state] ?? `No job is ${label.toLowerCase()}.`,
  }
  return new Paged(`${label} jobs`, terms, async (start, size) => {
    const { jobs, total } = await getJobs(name, state, start, size)
    return { rows: jobs, total }
  })
}
