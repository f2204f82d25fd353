import { h } from '../base/dom.js'
import { openAction } from './action-form.js'

/** What can be done with a job, by its state. */
const CHANGES = /** @type {const} */ ([
  {
    state: 'failed',
    label: 'Retry',
    action: 'retryJob',
    note: 'Puts the job back into the queue for one more attempt, if there is a place. It leaves at the rate.',
    done: 'The job is in the queue again.',
  },
  {
    state: 'failed',
    label: 'Remove',
    action: 'removeJob',
    note: 'Deletes the job with its data and log, and its children. It cannot be brought back.',
    done: 'The job is removed.',
  },
  {
    state: 'delayed',
    label: 'Promote',
    action: 'promoteJob',
    note: 'Ends the delay of the job. It leaves at the rate.',
    done: 'The job waits no longer for its delay.',
  },
])

/** The buttons that change one job. Each opens a dialog that requires a reason. */
export class JobActions {
  #buttons
  element

  /**
   * @param {string} queue
   * @param {string} jobId
   */
  constructor(queue, jobId) {
    this.#buttons = CHANGES.map((change) => ({
      state: change.state,
      button: h('button', { type: 'button', onclick: () => open(queue, jobId, change) }, `${change.label} job`),
    }))
    this.element = h(
      'div',
      { class: 'actions', role: 'group', 'aria-label': 'Actions of the job', hidden: true },
      ...this.#buttons.map(({ button }) => button),
    )
  }

  /** @param {string | undefined} jobState undefined where the job is gone */
  show(jobState) {
    for (const { state, button } of this.#buttons) button.hidden = state !== jobState
    this.element.hidden = this.#buttons.every(({ button }) => button.hidden)
  }
}

/**
 * @param {string} queue
 * @param {string} jobId
 * @param {(typeof CHANGES)[number]} change
 */
function open(queue, jobId, { label, action, note, done }) {
  openAction(queue, { title: `${label} job ${jobId}`, note, button: label, done, action: () => ({ action, jobId }) })
}
