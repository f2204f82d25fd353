import { showBadges } from '../base/badges.js'
import { DepthBar } from '../base/depth-bar.js'
import { h, setText } from '../base/dom.js'
import { Flow } from '../base/flow.js'
import { perSecond, unitsPerSecond } from '../base/format.js'
import { headAge, rateCause, rateNow, statesOf } from '../base/queue-text.js'
import { Sparkline } from './sparkline.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {'name' | 'rate' | 'arrivals' | 'departures' | 'refusals' | 'depth' | 'age'} SortKey
 */

/** Columns of the table of queues. */
export const COLUMNS = /** @type {const} */ ([
  { key: 'name', label: 'Queue' },
  { key: 'rate', label: 'Rate now' },
  { key: 'arrivals', label: 'Arrivals' },
  { key: 'departures', label: 'Departures' },
  { key: 'refusals', label: 'Refused' },
  { key: 'depth', label: 'Depth' },
  { key: 'age', label: 'Head age' },
  { key: undefined, label: 'Departures, 5 min' },
])

/**
 * @param {number} column
 * @param {string} className
 * @param {...Element} children
 */
const cell = (column, className, ...children) =>
  h('td', { role: 'cell', class: className, 'data-label': COLUMNS[column]?.label }, ...children)

/** One row of the table of queues. */
export class FleetRow {
  #link
  #badges = h('span', { class: 'badges' })
  #rate = h('strong')
  #cause = h('span', { class: 'muted small' })
  #arrivals = cell(2, 'num')
  #departures = cell(3, 'num')
  #refusals = cell(4, 'num')
  #depth = new DepthBar()
  #age = cell(6, 'num')
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
    const name = h('th', { role: 'rowheader', scope: 'row' }, this.#link, this.#badges)
    const rate = cell(1, 'rate', this.#rate, this.#cause)
    const depth = cell(5, '', this.#depth.element)
    const spark = cell(7, 'spark-cell', this.spark.element)
    const numbers = [this.#arrivals, this.#departures, this.#refusals]
    this.element = h('tr', { role: 'row' }, name, rate, ...numbers, depth, this.#age, spark)
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
    setText(this.#rate, rateNow(queue))
    setText(this.#cause, rateCause(queue))
    setText(this.#arrivals, perSecond(flow?.arrivals))
    setText(this.#departures, perSecond(flow?.departures))
    setText(this.#refusals, perSecond(flow?.refusals))
    this.#refusals.classList.toggle('bad', (flow?.refusals ?? 0) > 0)
    this.#depth.show(queue.depth, queue.capacity)
    setText(this.#age, headAge(queue))
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
    const { name, depth, headAgeMs = -1, rate } = this.queue
    if (key === 'name') return name.toLowerCase()
    if (key === 'rate') return unitsPerSecond(rate) ?? Number.POSITIVE_INFINITY
    if (key === 'depth') return depth
    return key === 'age' ? headAgeMs : (this.flow?.[key] ?? -1)
  }
}
