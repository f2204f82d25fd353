import { getDead } from '../base/api.js'
import { h } from '../base/dom.js'
import { letterColumns } from './job-columns.js'
import { Paged } from './paged.js'

/** The dead letters of a queue, in its dead letter queue. */
export class DeadLetters {
  #input
  #paged
  #name
  element

  /**
   * @param {string} name
   * @param {import('./job-columns.js').RowTerms} rows
   */
  constructor(name, rows) {
    this.#name = name
    this.#input = h('input', { id: 'dead-from', required: true, value: `${name}-dead` })
    const terms = {
      columns: letterColumns(rows),
      key: (/** @type {import('../wire.d.ts').Letter} */ { letterId }) => letterId,
      empty: 'There are no dead letters of this queue.',
    }
    this.#paged = new Paged('Dead letters', terms, async (start, size) => {
      const { letters, total } = await getDead(this.#name, this.from, start, size)
      return { rows: letters, total }
    })
    const form = h(
      'form',
      {
        class: 'toolbar',
        onsubmit: (event) => {
          event.preventDefault()
          this.refresh()
        },
      },
      h('label', { for: 'dead-from' }, 'Kept in the queue'),
      this.#input,
      h('button', { type: 'submit' }, 'Look'),
    )
    this.element = h('div', {}, form, this.#paged.element)
  }

  /** Name of the dead letter queue. */
  get from() {
    return this.#input.value.trim()
  }

  get hasFocus() {
    return this.element.contains(document.activeElement)
  }

  /** @param {string | undefined} from the name in the shape, used until the user enters another */
  suggest(from) {
    if (from !== undefined) this.#input.defaultValue = from
  }

  refresh() {
    return this.#paged.refresh()
  }
}
