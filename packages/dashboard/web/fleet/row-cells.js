import { showBadges } from '../base/badges.js'
import { DepthBar } from '../base/depth-bar.js'
import { h, setText } from '../base/dom.js'
import { perSecond } from '../base/format.js'
import { bypassesText, headAge, oldestText, rateCause, rateNow } from '../base/queue-text.js'

/** Columns of the table of queues. */
export const COLUMNS = /** @type {const} */ ([
  { key: 'name', label: 'Queue' },
  { key: 'look', label: 'Needs a look' },
  { key: 'rate', label: 'Rate now' },
  { key: 'arrivals', label: 'Arrivals' },
  { key: 'departures', label: 'Departures' },
  { key: 'refusals', label: 'Refused' },
  { key: 'completions', label: 'Completed' },
  { key: 'failures', label: 'Failed' },
  { key: 'depth', label: 'Depth' },
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

/** The cells of a row beside the name of its queue. */
export class RowCells {
  #badges = h('span', { class: 'badges' })
  #why = h('span', { class: 'why muted small' })
  #rate = h('strong')
  #cause = h('span', { class: 'muted small' })
  #look = cell(1, 'look', this.#badges, this.#why)
  #arrivals = cell(3, 'num')
  #departed = h('span')
  #refusals = cell(5, 'num')
  #bypasses = h('span', { class: 'why bad small' })
  #completions = cell(6, 'num')
  #failures = cell(7, 'num')
  #depth = new DepthBar()
  #headAge = h('span')
  #oldest = h('span', { class: 'why muted small' })
  elements

  /** @param {SVGElement} spark */
  constructor(spark) {
    this.elements = [
      this.#look,
      cell(2, 'rate', this.#rate, this.#cause),
      ...[this.#arrivals, cell(4, 'num', this.#departed, this.#bypasses), this.#refusals],
      ...[this.#completions, this.#failures],
      cell(8, 'depth-cell', this.#depth.element),
      cell(9, 'num', this.#headAge, this.#oldest),
      cell(10, 'spark-cell', spark),
    ]
  }

  /** @param {import('./fleet-row.js').FleetRow} row */
  show({ queue, flow }) {
    const { conditions } = queue
    showBadges(this.#badges, conditions)
    // Full is a consequence: where there is a cause beside it, that is shown.
    const shown = conditions.find(({ name }) => name !== 'Full') ?? conditions[0]
    setText(this.#why, shown?.text ?? '')
    this.#look.classList.toggle('empty', shown === undefined)
    setText(this.#rate, rateNow(queue))
    setText(this.#cause, rateCause(queue))
    setText(this.#arrivals, perSecond(flow?.arrivals))
    setText(this.#departed, perSecond(flow?.departures))
    setText(this.#bypasses, bypassesText(queue, flow))
    setText(this.#refusals, perSecond(flow?.refusals))
    this.#refusals.classList.toggle('bad', (flow?.refusals ?? 0) > 0)
    this.#depth.show(queue.depth, queue.capacity)
    setText(this.#completions, perSecond(flow?.completions))
    setText(this.#failures, perSecond(flow?.failures))
    this.#failures.classList.toggle('bad', queue.failing !== undefined)
    setText(this.#headAge, headAge(queue))
    setText(this.#oldest, oldestText(queue))
  }
}
