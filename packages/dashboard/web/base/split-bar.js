import { h, s } from './dom.js'
import { duration } from './format.js'
import { CAUSES } from './queue-text.js'

/** Shows how a waiting time divides into its causes. */
export class SplitBar {
  #bar = h('div', { class: 'split', 'aria-hidden': 'true' })
  #parts = CAUSES.map(({ label, color }) => {
    const segment = h('i')
    segment.style.background = `var(${color})`
    this.#bar.append(segment)
    const value = h('b', { class: 'num' })
    return { segment, value, item: h('li', {}, dot(color), label, value) }
  })
  element = h(
    'div',
    { class: 'split-box' },
    this.#bar,
    h('ul', { class: 'legend' }, ...this.#parts.map(({ item }) => item)),
  )

  /** @param {Readonly<Record<import('../wire.d.ts').HoldCause, number>>} parts ms */
  show(parts) {
    const whole = Object.values(parts).reduce((sum, part) => sum + part, 0)
    for (const [i, { cause }] of CAUSES.entries()) {
      const shown = this.#parts[i]
      if (!shown) continue
      const share = whole > 0 ? parts[cause] / whole : 0
      shown.segment.style.flexGrow = share.toFixed(4)
      shown.item.hidden = share === 0
      shown.value.textContent = `${duration(parts[cause])} (${(share * 100).toFixed(0)}%)`
    }
  }
}

/** @param {string} color */
function dot(color) {
  const circle = s('circle', { cx: 5, cy: 5, r: 5 })
  circle.style.fill = `var(${color})`
  return s('svg', { class: 'swatch dot-swatch', viewBox: '0 0 10 10', 'aria-hidden': 'true' }, circle)
}
