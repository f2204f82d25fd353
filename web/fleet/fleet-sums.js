import { h, setText } from '../base/dom.js'
import { count, perSecond } from '../base/format.js'
import { statesOf } from '../base/words.js'

/** The sums over all queues. */
export class FleetSums {
  #texts = new Map(['Queues', 'Arrivals', 'Departures', 'Refused', 'Waiting', 'Running', 'Need a look'].map(tile))
  element = h('dl', { class: 'tiles' }, ...[...this.#texts.values()].map(({ element }) => element))

  /** @param {readonly import('./fleet-row.js').FleetRow[]} rows */
  show(rows) {
    const flows = rows.flatMap(({ flow }) => (flow ? [flow] : []))
    /** @param {'arrivals' | 'departures' | 'refusals'} key */
    const sum = (key) => (flows.length === 0 ? undefined : flows.reduce((all, flow) => all + flow[key], 0))
    const queues = rows.map(({ queue }) => queue)
    this.#set('Queues', count(queues.length))
    this.#set('Arrivals', perSecond(sum('arrivals')))
    this.#set('Departures', perSecond(sum('departures')))
    this.#set('Refused', perSecond(sum('refusals')))
    this.#set('Waiting', count(queues.reduce((all, { depth }) => all + depth, 0)))
    this.#set('Running', count(queues.reduce((all, { active }) => all + active, 0)))
    this.#set('Need a look', count(queues.filter((queue) => statesOf(queue).length > 0).length))
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
