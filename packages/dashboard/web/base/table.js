import { h, setChildren, setText } from './dom.js'

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} label
 * @property {(row: Row) => string} text
 * @property {boolean} [isNumber]
 * @property {boolean} [isWide] may take several lines
 * @property {(row: Row) => Element} [element] instead of the text, created once for each row
 */

/**
 * A table that scrolls sideways. Rows are reused by their keys, so that they keep focus.
 * @template Row
 */
export class Table {
  #columns
  #keyOf
  #body = h('tbody')
  #emptyText
  /** In place of rows. That there are none is known once they have been read. */
  #empty = h('p', { class: 'empty muted' }, 'Not read yet.')
  /** @type {Map<string, { row: HTMLTableRowElement, cells: HTMLTableCellElement[] }>} */
  #rows = new Map()
  element

  /**
   * @param {string} label
   * @param {{ columns: readonly Column<Row>[], key: (row: Row) => string, empty: string }} terms
   */
  constructor(label, { columns, key, empty }) {
    this.#columns = columns
    this.#keyOf = key
    this.#emptyText = empty
    const heads = columns.map((column) => h('th', { scope: 'col', class: column.isNumber ? 'num' : '' }, column.label))
    this.element = h(
      'div',
      { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${label}, as a table` },
      h('table', {}, h('thead', {}, h('tr', {}, ...heads)), this.#body),
      this.#empty,
    )
  }

  /** @param {readonly Row[]} rows */
  show(rows) {
    const old = this.#rows
    this.#rows = new Map()
    for (const row of rows) {
      const key = this.#keyOf(row)
      const made = old.get(key) ?? this.#make(row)
      this.#rows.set(key, made)
      for (const [i, column] of this.#columns.entries()) {
        const cell = made.cells[i]
        if (cell && !column.element) setText(cell, column.text(row))
      }
    }
    setChildren(
      this.#body,
      [...this.#rows.values()].map(({ row }) => row),
    )
    setText(this.#empty, this.#emptyText)
    this.#empty.hidden = rows.length > 0
  }

  /** @param {Row} row */
  #make(row) {
    const cells = this.#columns.map(({ isNumber, isWide, element }) => {
      const cell = h('td', { class: isNumber ? 'num' : isWide ? 'wide' : '' })
      if (element) cell.append(element(row))
      return cell
    })
    return { row: h('tr', {}, ...cells), cells }
  }
}
