import { openDrop, openDropOf, openRedriveOf } from '../actions/letter-actions.js'
import { getDead } from '../base/api.js'
import { h, setText } from '../base/dom.js'
import { letterColumns } from './job-columns.js'
import { Paged } from './paged.js'

/** The dead letters of a queue, in the queues of dead letters that its workers report. */
export class DeadLetters {
  #input
  #known = h('datalist', { id: 'dead-known' })
  #drop = h(
    'button',
    { type: 'button', hidden: true, onclick: () => openDrop(this.#name, this.#from, () => void this.refresh()) },
    'Drop all',
  )
  #none = h('p', { class: 'muted small', hidden: true })
  #paged
  #name
  /** @type {readonly string[]} */
  #reported = []
  element

  /**
   * @param {string} name
   * @param {import('./job-columns.js').RowTerms} rows
   * @param {(total: number) => void} onTotal called with how many there are
   */
  constructor(name, rows, onTotal) {
    this.#name = name
    this.#input = h('input', { id: 'dead-from', required: true, autocomplete: 'off', list: 'dead-known' })
    const onDone = () => void this.refresh()
    const terms = {
      columns: letterColumns(rows, {
        redrive: ({ id }) => openRedriveOf(name, this.#from, { jobId: id, onDone }),
        drop: (letter) => openDropOf(name, this.#from, { letter, onDone }),
      }),
      key: (/** @type {import('../wire.d.ts').Letter} */ { letterId }) => letterId,
      empty: 'There are no dead letters of this queue here.',
    }
    this.#paged = new Paged('Dead letters', terms, async (start, size) => {
      if (this.#from === '') return { rows: [], total: 0 }
      const { letters, total } = await getDead(this.#name, this.#from, start, size)
      onTotal(total)
      this.#drop.hidden = total === 0
      return { rows: letters, total }
    })
    const form = h(
      'form',
      {
        class: 'toolbar',
        onsubmit: (event) => {
          event.preventDefault()
          void this.#paged.restart()
        },
      },
      h('label', { for: 'dead-from' }, 'Kept in the queue'),
      this.#input,
      this.#known,
      h('button', { type: 'submit' }, 'Look'),
      rows.mayChange && this.#drop,
    )
    setText(this.#none, 'No worker of this queue has reported where it keeps dead letters (its option deadLetter).')
    this.element = h('div', {}, form, this.#none, this.#paged.element)
  }

  /** The known queues of dead letters, the selected one first. */
  get queues() {
    return [...new Set([this.#from, ...this.#reported])].filter((name) => name !== '')
  }

  get hasFocus() {
    return this.#paged.hasFocus
  }

  /** @param {import('../wire.d.ts').Queue} queue */
  show({ deadLetterQueues, shape }) {
    const overflowTo = shape?.overflowTo
    const names = [...new Set([...deadLetterQueues, ...(overflowTo === undefined ? [] : [overflowTo])])]
    if (names.join() === this.#reported.join()) {
      this.#none.hidden = names.length > 0
      return
    }
    this.#reported = names
    this.#none.hidden = names.length > 0
    this.#known.replaceChildren(...names.map((value) => h('option', { value })))
    // Used until the user enters another.
    this.#input.defaultValue = names[0] ?? ''
    void this.refresh()
  }

  refresh() {
    return this.#paged.refresh()
  }

  /** The one that is shown. */
  get #from() {
    return this.#input.value.trim()
  }
}
