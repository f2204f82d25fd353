import { urgencyOf } from '../base/badges.js'
import { h } from '../base/dom.js'
import { Flow } from '../base/flow.js'
import { unitsPerSecond } from '../base/format.js'
import { RowCells } from './row-cells.js'
import { Sparkline } from './sparkline.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {import('../../src/fleet-page.ts').Sort} SortKey
 */

/**
 * One row of the table of queues. It has no element until it is shown, and until it comes near the screen that is no
 * more than the name of its queue.
 */
export class FleetRow {
  #flow = new Flow()
  /** @type {HTMLTableRowElement | undefined} */
  #element
  /** @type {RowCells | undefined} */
  #cells
  spark = new Sparkline()
  isSeeded = false
  /** @type {Queue} */
  queue

  /** @param {Queue} queue */
  constructor(queue) {
    this.queue = queue
    this.update(queue)
  }

  get element() {
    this.#element ??= this.#make()
    return this.#element
  }

  #make() {
    const { name } = this.queue
    const link = h('a', { href: `?queue=${encodeURIComponent(name)}`, 'data-route': true }, name)
    return h('tr', { role: 'row' }, h('th', { role: 'rowheader', scope: 'row' }, link))
  }

  get flow() {
    return this.#flow.perSecond()
  }

  /** @param {Queue} queue */
  update(queue) {
    this.queue = queue
    this.#flow.push(queue)
    this.spark.push(queue)
    this.#cells?.show(this)
  }

  /** Fills the row. */
  fill() {
    if (this.#cells) return
    this.#cells = new RowCells(this.spark.element())
    this.#cells.show(this)
    this.element.append(...this.#cells.elements)
  }

  /** @param {string} words of the filter, in lower case */
  matches(words) {
    if (words === '') return true
    const { name, conditions } = this.queue
    const text = [name, ...conditions.map((condition) => condition.name)].join(' ').toLowerCase()
    return words.split(/\s+/).every((word) => text.includes(word))
  }

  /**
   * @param {SortKey} key
   * @returns {number | string}
   */
  sortValue(key) {
    const { name, depth, headAgeMs = -1, rate } = this.queue
    if (key === 'name') return name.toLowerCase()
    if (key === 'look') return urgencyOf(this.queue.conditions)
    if (key === 'rate') return unitsPerSecond(rate) ?? Number.POSITIVE_INFINITY
    if (key === 'depth') return depth
    return key === 'age' ? headAgeMs : (this.flow?.[key] ?? -1)
  }
}
