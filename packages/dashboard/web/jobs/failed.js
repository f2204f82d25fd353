import { failedActions } from '../actions/failed-actions.js'
import { getFailed, getFailedReasons, getJobs } from '../base/api.js'
import { h, setChildren, setText } from '../base/dom.js'
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
  #reasons = h('ul', { class: 'reasons', 'aria-label': 'Reasons' })
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
        mayChange && failedActions(name, chosen),
      ),
      this.#reasons,
      this.#paged.element,
    )
  }

  get hasFocus() {
    return this.#paged.hasFocus
  }

  async refresh() {
    await Promise.all([this.#paged.refresh(), this.#showReasons()])
  }

  /** Without them the list is still of use. */
  async #showReasons() {
    const { reasons, searched } = await getFailedReasons(this.#name).catch(() => ({ reasons: [], searched: 0 }))
    const rows = reasons.map((reason) => reasonRow(reason, searched, () => this.#choose(reason.contains)))
    setChildren(this.#reasons, rows)
  }

  /** @param {string} contains '' for all */
  #choose(contains) {
    this.#reason.value = contains
    void this.#paged.restart()
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

/**
 * @param {import('../wire.d.ts').FailedReasons['reasons'][number]} reason
 * @param {number} searched
 * @param {() => void} onclick
 */
function reasonRow({ reason, count: jobs }, searched, onclick) {
  const title = 'Show only these'
  const share = `${Math.round((jobs * 100) / searched)}%`
  return h(
    'li',
    {},
    h('button', { type: 'button', class: 'quiet', title, onclick }, reason === '' ? 'no reason' : reason),
    h('span', { class: 'muted small' }, `${count(jobs)}, ${share}`),
  )
}
