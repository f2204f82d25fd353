import { h, setAttribute, setText } from './dom.js'
import { count } from './format.js'

/** Shows how many jobs hold a place, as a bar of the capacity. */
export class DepthBar {
  #fill = h('i')
  #text = h('span', { class: 'bar-text' })
  element = h('div', { class: 'depth' }, h('div', { class: 'bar', 'aria-hidden': 'true' }, this.#fill), this.#text)

  /**
   * @param {number} depth
   * @param {number | undefined} capacity
   */
  show(depth, capacity) {
    const part = capacity === undefined ? 0 : Math.min(1, depth / capacity)
    this.#fill.style.width = `${(part * 100).toFixed(1)}%`
    setAttribute(this.element, 'data-level', part >= 1 ? 'full' : part >= 0.8 ? 'high' : 'usual')
    const over = capacity !== undefined && depth > capacity ? ` (${count(depth - capacity)} over)` : ''
    setText(this.#text, capacity === undefined ? count(depth) : `${count(depth)} of ${count(capacity)}${over}`)
  }
}
