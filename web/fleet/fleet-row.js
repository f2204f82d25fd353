import { showBadges } from '../base/badges.js'
import { DepthBar } from '../base/depth-bar.js'
import { h, setText } from '../base/dom.js'
import { Flow } from '../base/flow.js'
import { count, perSecond, unitsPerSecond } from '../base/format.js'
import { headAge, oldestText, rateCause, rateNow } from '../base/queue-text.js'
import { statesOf, urgencyOf } from '../base/states.js'
import { Sparkline } from './sparkline.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {'name' | 'look' | 'rate' | 'arrivals' | 'departures' | 'refusals' | 'depth' | 'failed' | 'age'} SortKey
 */

/** Columns of the table of queues. */
export const COLUMNS = /** @type {const} */ ([
  { key: 'name', label: 'Queue' },
  { key: 'look', label: 'Needs a look' },
  { key: 'rate', label: 'Rate now' },
  { key: 'arrivals', label: 'Arrivals' },
  { key: 'departures', label: 'Departures' },
  { key: 'refusals', label: 'Refused' },
  { key: 'depth', label: 'Depth' },
  { key: 'failed', label: 'Failed' },
  { key: 'age', label: 'Head age' },
  { key: undefined, label: 'Departures against the rate, 5 min' },
])

/**
 * @param {number} column
 * @param {string} className
 * @param {...Element} children
 */
const cell = (column, className, ...children) =>
  h('td', { role: 'cell', class: className, 'data-label': COLUMNS[column]?.label }, ...children)

const NONE = { label: '', title: '' }

/** One row of the table of queues. */
export class FleetRow {
  #link
  #badges = h('span', { class: 'badges' })
  #why = h('span', { class: 'why muted small' })
  #rate = h('strong')
  #cause = h('span', { class: 'muted small' })
  #look = cell(1, 'look', this.#badges, this.#why)
  #arrivals = cell(3, 'num')
  #departures = cell(4, 'num')
  #refusals = cell(5, 'num')
  #depth = new DepthBar()
  #failed = cell(7, 'num')
  #headAge = h('span')
  #oldest = h('span', { class: 'why muted small' })
  #age = cell(8, 'num', this.#headAge, this.#oldest)
  #flow = new Flow()
  spark = new Sparkline()
  isSeeded = false
  /** @type {Queue} */
  queue
  element

  /** @param {Queue} queue */
  constructor(queue) {
    this.queue = queue
    this.#link = h('a', { href: `?queue=${encodeURIComponent(queue.name)}`, 'data-route': true }, queue.name)
    const name = h('th', { role: 'rowheader', scope: 'row' }, this.#link)
    const rate = cell(2, 'rate', this.#rate, this.#cause)
    const depth = cell(6, 'depth-cell', this.#depth.element)
    const spark = cell(9, 'spark-cell', this.spark.element)
    const numbers = [this.#arrivals, this.#departures, this.#refusals]
    this.element = h('tr', { role: 'row' }, name, this.#look, rate, ...numbers, depth, this.#failed, this.#age, spark)
    this.update(queue)
  }

  get flow() {
    return this.#flow.perSecond()
  }

  /** @param {Queue} queue */
  update(queue) {
    this.queue = queue
    this.#flow.push(queue)
    this.spark.push(queue)
    const { flow } = this
    showBadges(this.#badges, queue)
    const [first = NONE] = statesOf(queue)
    setText(this.#why, first.title)
    this.#look.classList.toggle('empty', first === NONE)
    setText(this.#rate, rateNow(queue))
    setText(this.#cause, rateCause(queue))
    setText(this.#arrivals, perSecond(flow?.arrivals))
    setText(this.#departures, perSecond(flow?.departures))
    setText(this.#refusals, perSecond(flow?.refusals))
    this.#refusals.classList.toggle('bad', (flow?.refusals ?? 0) > 0)
    this.#depth.show(queue.depth, queue.capacity)
    setText(this.#failed, count(queue.failed))
    setText(this.#headAge, headAge(queue))
    setText(this.#oldest, oldestText(queue))
  }

  /** @param {string} words of the filter, in lower case */
  matches(words) {
    const { name } = this.queue
    const text = `${name} ${statesOf(this.queue)
      .map(({ label }) => label)
      .join(' ')}`.toLowerCase()
    return words.split(/\s+/).every((word) => text.includes(word))
  }

  /**
   * @param {SortKey} key
   * @returns {number | string}
   */
  sortValue(key) {
    const { name, depth, failed, headAgeMs = -1, rate } = this.queue
    if (key === 'name') return name.toLowerCase()
    if (key === 'look') return urgencyOf(this.queue)
    if (key === 'failed') return failed
    if (key === 'rate') return unitsPerSecond(rate) ?? Number.POSITIVE_INFINITY
    if (key === 'depth') return depth
    return key === 'age' ? headAgeMs : (this.flow?.[key] ?? -1)
  }
}
