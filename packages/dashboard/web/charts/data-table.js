import { h } from '../base/dom.js'
import { time } from '../base/format.js'

const ROWS = 30

/** The data of a chart as a table: built when it is opened, newest first. */
export class DataTable {
  #terms
  #body = h('tbody')
  /** @type {{ at: readonly number[], values: readonly (readonly (number | null)[])[] }} */
  #data = { at: [], values: [] }
  element

  /** @param {import('./chart.js').ChartTerms} terms */
  constructor(terms) {
    this.#terms = terms
    const heads = ['Time', ...terms.lines.map(({ label }) => label)]
    const table = h(
      'table',
      {},
      h('caption', { class: 'hidden' }, `${terms.title}: values`),
      h('thead', {}, h('tr', {}, ...heads.map((head) => h('th', { scope: 'col' }, head)))),
      this.#body,
    )
    const region = { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${terms.title}: values` }
    this.element = h(
      'details',
      { class: 'data', ontoggle: () => this.#fill() },
      h('summary', {}, 'Values'),
      h('div', region, table),
    )
  }

  /**
   * @param {readonly number[]} at seconds since 1970
   * @param {readonly (readonly (number | null)[])[]} values of each line
   */
  show(at, values) {
    this.#data = { at, values }
  }

  #fill() {
    if (!this.element.open) return
    const { at, values } = this.#data
    const step = Math.max(1, Math.ceil(at.length / ROWS))
    const rows = []
    for (let i = at.length - 1; i >= 0; i -= step) {
      const cells = values.map((line) => h('td', { class: 'num' }, this.#terms.format(line[i])))
      rows.push(h('tr', {}, h('th', { scope: 'row' }, time((at[i] ?? 0) * 1000)), ...cells))
    }
    this.#body.replaceChildren(...rows)
  }
}
