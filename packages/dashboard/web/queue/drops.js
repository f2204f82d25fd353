import { s } from '../base/dom.js'

const COUNT = 3
/** Shortest and longest time between two drops, s: a faster flow is only shown in numbers. */
const LEAST_S = 0.3
const MOST_S = 4

/** Falling drops, at the pace of the events, within a visible range. */
export class Drops {
  #drops
  element
  #pace = Number.NaN

  /**
   * @param {string} name of the animation in queue.css
   * @param {number} x
   * @param {number} y where they start
   */
  constructor(name, x, y) {
    this.#drops = Array.from({ length: COUNT }, () => s('circle', { class: `drop ${name}`, cx: x, cy: y, r: 4.5 }))
    this.element = s('g', {}, ...this.#drops)
  }

  /**
   * @param {number} perSecond
   * @param {number} fall distance
   */
  show(perSecond, fall) {
    this.element.style.setProperty('--fall', `${Math.max(0, fall).toFixed(0)}px`)
    // A new pace makes the drops jump, so small changes are ignored.
    const pace =
      perSecond > 0 ? Math.round(Math.log2(Math.min(1 / LEAST_S, Math.max(1 / MOST_S, perSecond)))) : undefined
    if (pace === this.#pace) return
    this.#pace = pace ?? Number.NEGATIVE_INFINITY
    this.element.style.display = pace === undefined ? 'none' : ''
    const seconds = COUNT / 2 ** (pace ?? 0)
    for (const [i, drop] of this.#drops.entries()) {
      drop.style.animationDuration = `${seconds.toFixed(2)}s`
      drop.style.animationDelay = `${((-seconds * i) / COUNT).toFixed(2)}s`
    }
  }
}
