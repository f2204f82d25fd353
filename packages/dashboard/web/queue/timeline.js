import { getSeries } from '../base/api.js'
import { h, setAttribute } from '../base/dom.js'
import { keep, kept } from '../base/kept.js'
import { say } from '../base/said.js'
import { Chart } from '../charts/chart.js'
import { LineOfTime, RANGES } from '../charts/line-of-time.js'
import { Marks } from '../charts/marks.js'
import { QUEUE_CHARTS } from './queue-charts.js'

/** @typedef {import('../wire.d.ts').Queue} Queue */

/** By then also the drawings of charts that did not come near the screen are made, and can be printed. */
const LATE_MS = 3000

/** The charts of a queue over one range: filled from what Redis keeps, then from events. */
export class Timeline {
  #name
  #marks = new Marks()
  #charts = QUEUE_CHARTS.map((terms, i) => {
    const plugins = i === 0 ? [this.#marks.plugin(), this.#marks.buttons()] : [this.#marks.plugin()]
    return new Chart(terms, plugins)
  })
  #buttons = RANGES.map((range) =>
    h('button', { type: 'button', 'aria-pressed': 'false', onclick: () => this.#choose(range) }, range.label),
  )
  /** @type {(typeof RANGES)[number]} */
  #range = RANGES.find(({ name }) => name === kept('range')) ?? RANGES[0]
  #line = new LineOfTime(this.#range)
  #late
  /** @type {Queue | undefined} */
  #queue
  element = h(
    'section',
    { 'aria-labelledby': 'timeline-title' },
    h(
      'div',
      { class: 'section-head' },
      h('h2', { id: 'timeline-title' }, 'Over time'),
      h('div', { class: 'segments', role: 'group', 'aria-label': 'Range' }, ...this.#buttons),
    ),
    h('div', { class: 'charts' }, ...this.#charts.map(({ element }) => element)),
  )

  /** @param {string} name of the queue */
  constructor(name) {
    this.#name = name
    this.#late = setTimeout(() => this.#startAll(), LATE_MS)
  }

  /**
   * @param {Queue} queue
   * @param {readonly import('../wire.d.ts').Change[]} changes newest first
   */
  show(queue, changes) {
    const isFirst = this.#queue === undefined
    this.#queue = queue
    if (isFirst) void this.#choose(this.#range)
    this.#line.push(queue)
    this.#draw(changes)
  }

  /** Reads what was missed. */
  refill() {
    void this.#choose(this.#range)
  }

  close() {
    clearTimeout(this.#late)
    for (const chart of this.#charts) chart.close()
  }

  /** One by one, so that the page can be used meanwhile. */
  async #startAll() {
    for (const chart of this.#charts) {
      await chart.start()
      await new Promise((resolve) => setTimeout(resolve))
    }
  }

  /** @type {readonly import('../wire.d.ts').Change[]} */
  #changes = []

  /** @param {readonly import('../wire.d.ts').Change[]} [changes] */
  #draw(changes = this.#changes) {
    this.#changes = changes
    const queue = this.#queue
    if (!queue) return
    const time = this.#line.figures()
    this.#marks.set(changes, time.figures.paused)
    for (const chart of this.#charts) chart.show(time, queue)
  }

  /** @param {(typeof RANGES)[number]} range */
  async #choose(range) {
    for (const [i, button] of this.#buttons.entries()) setAttribute(button, 'aria-pressed', String(RANGES[i] === range))
    this.#range = range
    keep('range', range.name)
    const line = new LineOfTime(range)
    this.#line = line
    const nowMs = Date.parse(this.#queue?.at ?? new Date().toISOString())
    try {
      const { samples } = await getSeries(this.#name, new Date(nowMs - range.spanMs))
      line.fill(samples)
    } catch {
      say('Earlier data could not be read; the charts begin now.')
    }
    if (this.#line === line) this.#draw()
  }
}
