import { ActionBar } from './action-bar.js'
import { deadQueueField } from './action-form.js'

/** What can be done with a job, by its state. */
const CHANGES = /** @type {const} */ ([
  {
    states: ['failed'],
    label: 'Retry job',
    title: 'Retry job',
    button: 'Retry',
    action: 'retryJob',
    note: 'Puts the job back into the queue for one more attempt, if there is a place. It leaves at the rate.',
    done: 'The job is in the queue again.',
  },
  {
    states: ['failed'],
    label: 'Remove job',
    title: 'Remove job',
    button: 'Remove',
    action: 'removeJob',
    note: 'Deletes the job with its data and log, and its children. It cannot be brought back.',
    done: 'The job is removed.',
  },
  {
    states: ['failed'],
    label: 'To dead letters',
    title: 'Move job',
    button: 'Move',
    action: 'deadLetterJob',
    note: 'Moves the job out of this queue. A redrive puts it back with all its attempts.',
    done: 'The job is a dead letter.',
  },
  {
    states: ['delayed'],
    label: 'Promote job',
    title: 'Promote job',
    button: 'Promote',
    action: 'promoteJob',
    note: 'Ends the delay of the job. It leaves at the rate.',
    done: 'The job waits no longer for its delay.',
  },
  {
    states: ['waiting', 'prioritized', 'delayed', 'waiting-children', 'active'],
    label: 'Cancel job',
    title: 'Cancel job',
    button: 'Cancel job',
    action: 'cancelJob',
    note: 'Fails the job with this reason. If it is running, its worker aborts it; it is not retried.',
    done: 'The job is cancelled.',
  },
])

/**
 * The buttons that change one job.
 * @param {string} queue
 * @param {string} jobId
 * @param {() => readonly string[]} deadQueues the known queues of dead letters
 * @returns {ActionBar<string>} which is shown the state of the job; undefined where the job is gone
 */
export function jobActions(queue, jobId, deadQueues) {
  const changes = CHANGES.map(({ states, label, title, button, note, done, action }) => ({
    label,
    isFor: (/** @type {string} */ state) => states.some((one) => one === state),
    dialog: () => {
      const to = action === 'deadLetterJob' ? deadQueueField('Queue of dead letters', deadQueues()) : undefined
      return {
        title: `${title} ${jobId}`,
        ...{ note, button, done },
        fields: to ? [to.element] : [],
        action: () => ({ action, jobId, ...(to && { to: to.value }) }),
      }
    },
  }))
  return new ActionBar('Actions of the job', changes, { queue: () => queue })
}
