import { ApiError } from '../base/api.js'
import { h, setText } from '../base/dom.js'
import { count } from '../base/format.js'
import { Table } from '../base/table.js'

const PAGE = 10

/**
 * A table that shows one page, read when it is shown and again on demand.
 * @template Row
 */
export class Paged {
  #read
  #table
  #start = 0
  #where = h('span', { class: 'muted small' })
  #back = h('button', { type: 'button', class: 'quiet', onclick: () => this.#move(-PAGE) }, 'Previous')
  #on = h('button', { type: 'button', class: 'quiet', onclick: () => this.#move(PAGE) }, 'Next')
  #fresh = h('button', { type: 'button', class: 'quiet', onclick: () => this.refresh() }, 'Refresh')
  #error = h('p', { class: 'error', role: 'alert' })
  element

  /**
   * @param {string} label
   * @param {{ columns: readonly import('../base/table.js').Column<Row>[], key: (row: Row) => string, empty: string }} terms
   * @param {(start: number, size: number) => Promise<{ rows: readonly Row[], total: number }>} read
   */
  constructor(label, terms, read) {
    this.#read = read
    this.#table = /** @type {Table<Row>} */ (new Table(label, terms))
    const pager = h('div', { class: 'pager' }, this.#where, this.#back, this.#on, this.#fresh)
    this.element = h('div', {}, this.#error, this.#table.element, pager)
  }

  get hasFocus() {
    return this.element.contains(document.activeElement)
  }

  /** Reads the first page: what is listed has changed. */
  restart() {
    this.#start = 0
    return this.refresh()
  }

  async refresh() {
    try {
      const { rows, total } = await this.#read(this.#start, PAGE)
      this.#table.show(rows)
      const last = this.#start + rows.length
      setText(this.#where, rows.length === 0 ? '' : `${count(this.#start + 1)} to ${count(last)} of ${count(total)}`)
      this.#back.disabled = this.#start === 0
      this.#on.disabled = last >= total
      setText(this.#error, '')
    } catch (error) {
      setText(this.#error, error instanceof ApiError ? error.message : 'The list could not be read.')
    }
  }

  /** @param {number} by */
  #move(by) {
    this.#start = Math.max(0, this.#start + by)
    return this.refresh()
  }
}
