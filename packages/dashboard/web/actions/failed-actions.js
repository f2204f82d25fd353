import { h } from '../base/dom.js'
import { plural } from '../base/format.js'
import { deadQueueField, openAction } from './action-form.js'

/**
 * @typedef {object} Chosen
 * @property {string} failedReason '' for all
 * @property {number | undefined} count how many there are
 * @property {readonly string[]} deadQueues the known ones
 */

/** What can be done with all failed jobs, or those that match a filter. */
const CHANGES = /** @type {const} */ ([
  {
    label: 'Retry all',
    action: 'retryJobs',
    button: 'Retry',
    note: 'Puts them back for one more attempt, the oldest first, each as soon as there is a place. They leave at the rate. Jobs that fail meanwhile are left alone.',
    done: 'The jobs are being retried.',
  },
  {
    label: 'Remove all',
    action: 'removeJobs',
    button: 'Remove',
    note: 'Deletes them with their data and logs, and their children. They cannot be brought back.',
    done: 'The jobs are being removed.',
  },
  {
    label: 'All to dead letters',
    action: 'deadLetterJobs',
    button: 'Move',
    note: 'Moves them out of this queue. A redrive puts them back with all their attempts.',
    done: 'The jobs are being moved.',
  },
])

/** The buttons that change all failed jobs that match the filter. Each opens a dialog that requires a reason. */
export class FailedActions {
  #queue
  #chosen
  element

  /**
   * @param {string} queue
   * @param {() => Chosen} chosen
   */
  constructor(queue, chosen) {
    this.#queue = queue
    this.#chosen = chosen
    this.element = h(
      'div',
      { class: 'actions', role: 'group', 'aria-label': 'Actions of failed jobs' },
      ...CHANGES.map((change) => h('button', { type: 'button', onclick: () => this.#open(change) }, change.label)),
    )
  }

  /** @param {(typeof CHANGES)[number]} change */
  #open({ button, action, note, done }) {
    const { failedReason, count, deadQueues } = this.#chosen()
    const which = failedReason === '' ? '' : ` whose reason contains “${failedReason}”`
    const jobs = count === undefined ? 'Failed jobs' : plural(count, 'failed job')
    const to = action === 'deadLetterJobs' ? deadQueueField('Queue of dead letters', deadQueues) : undefined
    openAction(this.#queue, {
      title: `${button} ${jobs}`,
      note: `${jobs}${which}. ${note}`,
      button,
      done,
      fields: to ? [to.element] : [],
      action: () => ({
        action,
        ...(failedReason === '' ? {} : { failedReason }),
        ...(to && { to: to.value }),
      }),
    })
  }
}
