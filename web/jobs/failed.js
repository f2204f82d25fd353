import { FailedActions } from '../actions/failed-actions.js'
import { getFailed, getJobs } from '../base/api.js'
import { h, setText } from '../base/dom.js'
import { count } from '../base/format.js'
import { Paged } from './paged.js'

/** Pause in typing after which the filter is applied. */
const TYPING_MS = 300

/** The failed jobs of a queue, filtered by their reason; all that match can be changed. */
export class Failed {
  #name
  #paged
  /** @type {number | undefined} */
  #matching
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing
  #reason = h('input', {
    id: 'failed-reason',
    type: 'search',
    maxlength: 1024,
    placeholder: 'All',
    autocomplete: 'off',
    oninput: () => this.#typed(),
  })
  #found = h('span', { class: 'muted small', role: 'status' })
  element

  /**
   * @param {string} name
   * @param {import('./job-columns.js').RowTerms} rows
   * @param {{ columns: readonly import('../base/table.js').Column<import('../wire.d.ts').Job>[], deadQueues: () => readonly string[] }} terms
   */
  constructor(name, { mayChange }, { columns, deadQueues }) {
    this.#name = name
    const terms = {
      columns,
      key: (/** @type {import('../wire.d.ts').Job} */ { id }) => id,
      empty: 'No failed job is kept, or none with this reason.',
    }
    this.#paged = new Paged('Failed jobs', terms, (start, size) => this.#read(start, size))
    const chosen = () => ({ failedReason: this.#text, count: this.#matching, deadQueues: deadQueues() })
    this.element = h(
      'div',
      {},
      h(
        'div',
        { class: 'toolbar' },
        h('label', { for: 'failed-reason' }, 'Reason contains'),
        this.#reason,
        this.#found,
        mayChange && new FailedActions(name, chosen).element,
      ),
      this.#paged.element,
    )
  }

  get hasFocus() {
    return this.#paged.hasFocus
  }

  refresh() {
    return this.#paged.refresh()
  }

  get #text() {
    return this.#reason.value.trim()
  }

  #typed() {
    clearTimeout(this.#typing)
    this.#typing = setTimeout(() => this.#paged.restart(), TYPING_MS)
  }

  /**
   * @param {number} start
   * @param {number} size
   */
  async #read(start, size) {
    const text = this.#text
    const found = await (text === ''
      ? getJobs(this.#name, 'failed', start, size)
      : getFailed(this.#name, text, start, size))
    const { jobs, total } = found
    const isAtLeast = 'isTotalAtLeast' in found && found.isTotalAtLeast
    this.#matching = isAtLeast ? undefined : total
    setText(this.#found, text === '' ? '' : `${isAtLeast ? 'at least ' : ''}${count(total)} match`)
    return { rows: jobs, total }
  }
}
