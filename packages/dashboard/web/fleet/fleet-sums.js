import { h, setAttribute, setText } from '../base/dom.js'
import { count, perSecond } from '../base/format.js'

/** The sums over all queues. */
export class FleetSums {
  #texts = new Map(
    ['Queues', 'Arrivals', 'Departures', 'Refused', 'Completed', 'Failed', 'Waiting', 'Running'].map(tile),
  )
  #marked = h('strong', {}, '–')
  #look
  element

  /** @param {() => void} onLook called when only queues that need a look are wanted, or all again */
  constructor(onLook) {
    const onclick = () => {
      setAttribute(this.#look, 'aria-pressed', String(!this.marked))
      onLook()
    }
    const title = 'Show only these'
    this.#look = h(
      'button',
      { type: 'button', class: 'tile look-tile', 'aria-pressed': 'false', title, onclick },
      h('span', {}, 'Need a look'),
      this.#marked,
    )
    const tiles = [...this.#texts.values()].map(({ element }) => element)
    this.element = h('div', { class: 'sums' }, h('dl', { class: 'tiles' }, ...tiles), this.#look)
  }

  /** Whether only queues that need a look are wanted. */
  get marked() {
    return this.#look.getAttribute('aria-pressed') === 'true'
  }

  /**
   * @param {readonly import('./fleet-row.js').FleetRow[]} rows
   * @param {{ total: number, sums?: import('../wire.d.ts').Fleet['sums'] }} [all] if the rows are only some queues
   */
  show(rows, all) {
    if (all) return this.#showSums(all.total, all.sums)
    const flows = rows.flatMap(({ flow }) => (flow ? [flow] : []))
    /** @param {'arrivals' | 'departures' | 'refusals' | 'completions' | 'failures'} key */
    const sum = (key) => flows.reduce((total, flow) => total + flow[key], 0)
    const queues = rows.map(({ queue }) => queue)
    this.#showSums(queues.length, {
      arrivals: sum('arrivals'),
      departures: sum('departures'),
      refusals: sum('refusals'),
      completions: sum('completions'),
      failures: sum('failures'),
      depth: queues.reduce((total, { depth }) => total + depth, 0),
      active: queues.reduce((total, { active }) => total + active, 0),
      marked: rows.filter(({ queue }) => queue.conditions.length > 0).length,
    })
    if (flows.length === 0)
      for (const label of ['Arrivals', 'Departures', 'Refused', 'Completed', 'Failed'])
        this.#set(label, perSecond(undefined))
  }

  /**
   * @param {number} queues
   * @param {import('../wire.d.ts').Fleet['sums']} sums undefined before they are known
   */
  #showSums(queues, sums) {
    this.#set('Queues', count(queues))
    this.#set('Arrivals', perSecond(sums?.arrivals))
    this.#set('Departures', perSecond(sums?.departures))
    this.#set('Refused', perSecond(sums?.refusals))
    this.#set('Completed', perSecond(sums?.completions))
    this.#set('Failed', perSecond(sums?.failures))
    this.#set('Waiting', count(sums?.depth))
    this.#set('Running', count(sums?.active))
    setText(this.#marked, count(sums?.marked))
    this.#look.classList.toggle('is-some', (sums?.marked ?? 0) > 0)
  }

  /**
   * @param {string} label
   * @param {string} text
   */
  #set(label, text) {
    const tile = this.#texts.get(label)
    if (tile) setText(tile.value, text)
  }
}

/**
 * @param {string} label
 * @returns {[string, { element: HTMLElement, value: HTMLElement }]}
 */
function tile(label) {
  const value = h('dd', {}, '–')
  return [label, { element: h('div', { class: 'tile' }, h('dt', {}, label), value), value }]
}
