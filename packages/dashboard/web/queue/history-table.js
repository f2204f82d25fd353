import { h, setAttribute, setText } from '../base/dom.js'
import { plural } from '../base/format.js'
import { Table } from '../base/table.js'
import { historyRows, rowOf } from './history-groups.js'

/** Rows that are shown at first. */
const FEW = 6

/** The history of changes, with author and reason; newest first, runs of feedback as one row each. */
export class HistoryTable {
  #table = /** @type {Table<import('./history-groups.js').Row>} */ (
    new Table('History', {
      columns: [
        { label: 'Time', text: ({ when }) => when },
        { label: 'What', text: ({ what }) => what },
        { label: 'Change', text: ({ change }) => change, isWide: true },
        { label: 'Why', text: ({ why }) => why, isWide: true },
        { label: 'Who', text: ({ who }) => who },
      ],
      key: ({ key }) => key,
      empty: 'Nothing has been changed yet.',
    })
  )
  #each = h('button', {
    type: 'button',
    class: 'quiet',
    'aria-expanded': 'false',
    hidden: true,
    onclick: () => this.#toggle(),
  })
  #isEach = false
  /** @type {readonly import('../wire.d.ts').Change[]} */
  #changes = []
  element = h('div', {}, this.#table.element, h('div', { class: 'pager' }, this.#each))

  /** @param {readonly import('../wire.d.ts').Change[]} changes newest first */
  show(changes) {
    this.#changes = changes
    const rows = historyRows(changes)
    this.#table.show(this.#isEach ? changes.map(rowOf) : rows.slice(0, FEW))
    this.#each.hidden = rows.length <= FEW && rows.length === changes.length
    setText(this.#each, this.#isEach ? 'Show less' : `Show each of ${plural(changes.length, 'change')}`)
    setAttribute(this.#each, 'aria-expanded', String(this.#isEach))
  }

  #toggle() {
    this.#isEach = !this.#isEach
    this.show(this.#changes)
  }
}
