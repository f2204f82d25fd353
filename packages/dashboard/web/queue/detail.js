import { openDialog } from '../base/dialog.js'
import { h, setAttribute, setText } from '../base/dom.js'
import { Table } from '../base/table.js'
import { jobColumns } from '../jobs/job-columns.js'

const REFRESH_MS = 5000
/** Of the one that is open. */
const DETAIL_REFRESH_MS = 2000

/**
 * Reads rows again and again while they are seen.
 * @param {HTMLElement} element
 * @param {() => void} read
 * @returns {() => void} stops it
 */
export function refreshWhileSeen(element, read) {
  const timer = setInterval(() => {
    // Rows must not move while the user is about to open one.
    const isBusy = element.contains(document.activeElement)
    if (!element.hidden && !document.hidden && !isBusy) read()
  }, REFRESH_MS)
  return () => clearInterval(timer)
}

/**
 * Shows one of many in a dialog, which refreshes while it is open.
 * @param {string} title
 * @param {object} terms
 * @param {string} terms.of what it is, as 'group'
 * @param {string} terms.empty said where no job of it waits
 * @param {import('../jobs/job-columns.js').RowTerms} terms.rows
 * @param {HTMLElement} terms.actions
 * @param {readonly (Node | string)[]} [terms.more] below its jobs
 * @param {() => Promise<Detail>} terms.look
 * @param {() => void} terms.onClose
 * @returns {() => void} looks again at once
 *
 * @typedef {object} Detail
 * @property {string} sentence
 * @property {string | undefined} cause the colour of what holds it
 * @property {readonly [string, string][]} facts
 * @property {readonly import('../wire.d.ts').Job[]} jobs
 */
export function showDetail(title, { of, empty, rows, actions, more = [], look, onClose }) {
  const status = h('p', { class: 'hold' }, 'Looking')
  const facts = h('dl', { class: 'facts-list' })
  const jobs = new Table(`Next jobs of the ${of}`, {
    columns: jobColumns(['id', 'name', 'added', 'age', 'cost', 'attempts'], rows),
    key: (/** @type {import('../wire.d.ts').Job} */ { id }) => id,
    empty,
  })
  const read = async () => {
    try {
      const seen = await look()
      setText(status, seen.sentence)
      setAttribute(status, 'data-cause', seen.cause)
      facts.replaceChildren(...seen.facts.flatMap(([name, text]) => [h('dt', {}, name), h('dd', {}, text)]))
      if (!jobs.element.contains(document.activeElement)) jobs.show(seen.jobs)
    } catch (error) {
      setText(status, error instanceof Error ? error.message : String(error))
    }
  }
  const timer = setInterval(read, DETAIL_REFRESH_MS)
  openDialog(title, {
    body: h('div', {}, status, actions, facts, h('h3', {}, 'Next jobs'), jobs.element, ...more),
    onClose: () => {
      clearInterval(timer)
      onClose()
    },
  })
  void read()
  return () => void read()
}
