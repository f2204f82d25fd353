import { h, s, setAttribute, setText } from '../base/dom.js'
import { say } from '../base/said.js'
import { onTheme } from '../base/theme.js'
import { DataTable } from './data-table.js'
import { plotOptions } from './plot-options.js'

/**
 * @typedef {import('./points.js').Figures} Figures
 * @typedef {import('uplot')} Plot
 * @typedef {(number | null)[]} Values
 * @typedef {object} Line
 * @property {string} label
 * @property {string} color a variable of base.css
 * @property {'line' | 'area' | 'dashed' | 'stacked'} kind
 * @property {(figures: Figures, queue: import('../wire.d.ts').Queue) => Values} values
 * @property {(queue: import('../wire.d.ts').Queue) => number | undefined} [now] what the legend shows where the line ends
 * @typedef {object} ChartTerms
 * @property {string} id
 * @property {string} title
 * @property {readonly Line[]} lines stacked ones from the bottom up
 * @property {(value: number | null | undefined) => string} format
 * @property {number} [top] minimum of the upper end of the scale
 * @property {number} [most] fixed upper end of the scale
 * @property {number} height px
 */

/** Half a screen above and below. */
const NEAR = '50%'

/**
 * A chart over time: a legend with values, a summary for screen readers, a table, and, once it comes near the screen, the
 * drawing.
 */
export class Chart {
  #terms
  #plugins
  /** @type {Plot | undefined} */
  #plot
  #values
  #summary
  #box = h('div', { class: 'plot' })
  #table
  #resize
  #near
  #offTheme
  /** Drawing costs a phone more than all else on the page, and most charts are below the screen. */
  #isNear = false
  #isClosed = false
  /** What is drawn once the chart is near. */
  #draw = () => {}
  /** Paper shows all charts. uPlot draws in a microtask, before the browser prints. */
  #onPrint = () => this.#draw()
  /** @type {Values[]} as measured, not stacked */
  #raw = []
  /** @type {number[]} */
  #at = []
  /** @type {(number | undefined)[]} */
  #now = []
  element

  /**
   * @param {ChartTerms} terms
   * @param {import('uplot').Plugin[]} plugins
   */
  constructor(terms, plugins) {
    this.#terms = terms
    this.#plugins = plugins
    this.#box.style.height = `${terms.height}px`
    this.#values = terms.lines.map(() => h('b', { class: 'num' }))
    this.#summary = h('p', { class: 'hidden', id: `${terms.id}-text` })
    this.#table = new DataTable(terms)
    const legend = terms.lines.map(({ label, color, kind }, i) =>
      h('li', {}, swatch(color, kind), label, this.#values[i]),
    )
    const title = h('h3', { id: `${terms.id}-title` }, terms.title)
    const image = h('div', { role: 'img', 'aria-labelledby': `${terms.id}-title ${terms.id}-text` }, this.#box)
    // Outside the image role, so that elements of plugins are accessible.
    this.element = h(
      'figure',
      { class: 'chart card', id: terms.id },
      h('figcaption', {}, title, h('ul', { class: 'legend' }, ...legend)),
      h('div', { class: 'drawing' }, image),
      this.#summary,
      this.#table.element,
    )
    this.#resize = new ResizeObserver(([entry]) => this.#fit(entry?.contentRect.width ?? 0))
    // Of several changes at once the last one counts.
    const onMove = (/** @type {IntersectionObserverEntry[]} */ entries) =>
      this.#came(entries.at(-1)?.isIntersecting === true)
    this.#near = new IntersectionObserver(onMove, { rootMargin: NEAR })
    this.#near.observe(this.element)
    addEventListener('beforeprint', this.#onPrint)
    this.#offTheme = onTheme(() => this.#plot?.redraw(false))
  }

  /** Makes the drawing. */
  async start() {
    const UPlot = await loadPlot()
    if (this.#isClosed) return
    if (!UPlot) say('The charts could not be loaded; their values are in the tables below them.')
    else if (!this.#plot) this.#make(UPlot)
  }

  /** @param {typeof import('uplot')} UPlot */
  #make(UPlot) {
    const options = plotOptions(UPlot, this.#terms, (index) => this.#showValues(index))
    const data = /** @type {uPlot.AlignedData} */ ([[], ...this.#terms.lines.map(() => [])])
    this.#plot = new UPlot({ ...options, plugins: this.#plugins }, data, this.#box)
    this.#resize.observe(this.#box)
    if (this.#isNear) this.#draw()
  }

  /**
   * @param {{ figures: Figures, from: number, to: number }} time
   * @param {import('../wire.d.ts').Queue} queue
   */
  show({ figures, from, to }, queue) {
    const { lines } = this.#terms
    this.#at = figures.at
    this.#now = lines.map(({ now }) => now?.(queue))
    this.#raw = lines.map(({ values }) => values(figures, queue))
    this.#draw = () =>
      this.#plot?.batch((/** @type {Plot} */ plot) => {
        plot.setData(/** @type {uPlot.AlignedData} */ ([figures.at, ...stacked(lines, this.#raw)]), false)
        plot.setScale('x', { min: from, max: to })
      })
    if (this.#isNear) this.#draw()
    if (typeof this.#plot?.cursor.idx !== 'number') this.#showValues(null)
    setText(this.#summary, this.#summarise(from))
    this.#table.show(this.#at, this.#raw)
  }

  close() {
    this.#isClosed = true
    this.#resize.disconnect()
    this.#near.disconnect()
    removeEventListener('beforeprint', this.#onPrint)
    this.#offTheme()
    this.#plot?.destroy()
  }

  /** @param {boolean} isNear */
  #came(isNear) {
    this.#isNear = isNear
    if (!isNear) return
    if (this.#plot) this.#draw()
    else void this.start()
  }

  /** @param {number} width */
  #fit(width) {
    if (width > 0) this.#plot?.setSize({ width, height: this.#terms.height })
  }

  /** @param {number | null | undefined} index the newest value where it is missing */
  #showValues(index) {
    const i = index ?? this.#at.length - 1
    for (const [line, value] of this.#values.entries()) {
      const now = index === null || index === undefined ? this.#now[line] : undefined
      setText(value, this.#terms.format(now ?? this.#raw[line]?.[i]))
    }
  }

  /** @param {number} from */
  #summarise(from) {
    const { format, lines } = this.#terms
    const parts = lines.map(({ label }, line) => {
      const seen = (this.#raw[line] ?? []).filter((value, i) => value !== null && (this.#at[i] ?? 0) >= from)
      if (seen.length === 0) return `${label}: nothing.`
      const numbers = /** @type {number[]} */ (seen)
      const [least, most] = [Math.min(...numbers), Math.max(...numbers)]
      return `${label}: ${format(numbers.at(-1))} now, between ${format(least)} and ${format(most)}.`
    })
    return parts.join(' ')
  }
}

/**
 * Sums stacked lines: each line includes those before it.
 * @param {readonly Line[]} lines
 * @param {readonly Values[]} raw
 */
function stacked(lines, raw) {
  /** @type {Values | undefined} */
  let below
  const sums = raw.map((values, line) => {
    if (lines[line]?.kind !== 'stacked') return values
    const under = below
    below = under ? values.map((value, i) => (value === null ? null : value + (under[i] ?? 0))) : values
    return below
  })
  // The total is drawn first, and the parts over it.
  return lines[0]?.kind === 'stacked' ? sums.reverse() : sums
}

/**
 * @param {string} color
 * @param {Line['kind']} kind
 */
function swatch(color, kind) {
  const line = s('line', {
    x1: 1,
    y1: 5,
    x2: 15,
    y2: 5,
    'stroke-width': kind === 'line' || kind === 'dashed' ? 2.5 : 9,
  })
  line.style.stroke = `var(${color})`
  if (kind === 'dashed') setAttribute(line, 'stroke-dasharray', '4 3')
  return s('svg', { class: 'swatch', viewBox: '0 0 16 10', 'aria-hidden': 'true' }, line)
}

/** @returns {Promise<typeof import('uplot') | undefined>} undefined if it could not be loaded */
async function loadPlot() {
  try {
    return (await import('uplot')).default
  } catch {
    return undefined
  }
}
