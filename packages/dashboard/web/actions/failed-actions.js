import { plural } from '../base/format.js'
import { ActionBar } from './action-bar.js'
import { deadQueueField } from './action-form.js'

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
    note: 'Puts them back for one more attempt, oldest first, each as soon as there is a place. They leave at the rate. Jobs that fail meanwhile are left alone.',
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

/**
 * The buttons that change all failed jobs that match the filter.
 * @param {string} queue
 * @param {() => Chosen} chosen
 */
export function failedActions(queue, chosen) {
  const changes = CHANGES.map(({ label, button, action, note, done }) => ({
    label,
    dialog: () => {
      const { failedReason, count, deadQueues } = chosen()
      const which = failedReason === '' ? '' : ` whose reason contains “${failedReason}”`
      const jobs = count === undefined ? 'Failed jobs' : plural(count, 'failed job')
      const to = action === 'deadLetterJobs' ? deadQueueField('Queue of dead letters', deadQueues) : undefined
      return {
        ...{ title: `${button} ${jobs}`, note: `${jobs}${which}. ${note}`, button, done },
        fields: to ? [to.element] : [],
        action: () => ({ action, ...(failedReason === '' ? {} : { failedReason }), ...(to && { to: to.value }) }),
      }
    },
  }))
  const bar = new ActionBar('Actions of failed jobs', changes, { queue: () => queue })
  bar.show(queue)
  return bar.element
}
