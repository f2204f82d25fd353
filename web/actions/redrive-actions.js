import { h } from '../base/dom.js'
import { deadQueueField, field, openAction } from './action-form.js'

/**
 * Opens the dialog that puts dead letters back.
 * @param {string} queue
 * @param {readonly string[]} deadQueues the one to begin with first
 */
export function openRedrive(queue, deadQueues) {
  const from = deadQueueField('Queue of dead letters', deadQueues)
  const reason = h('input', { id: 'action-failed-reason', maxlength: 1024, autocomplete: 'off' })
  openAction(queue, {
    title: 'Redrive',
    note: 'Puts dead letters of this queue back into it, oldest first, each as soon as there is a place.',
    button: 'Redrive',
    done: 'The redrive has begun.',
    fields: [from.element, field('Only those whose reason contains', reason, 'Empty: all of them.')],
    action: () => ({ action: 'redrive', from: from.value, ...reasonOf(reason.value) }),
  })
}

/**
 * The same for the letter of one job.
 * @param {string} queue
 * @param {string} from
 * @param {string} jobId
 */
export function openRedriveOf(queue, from, jobId) {
  openAction(queue, {
    title: `Redrive job ${jobId}`,
    note: 'Puts the job back into the queue with all its attempts, as soon as there is a place.',
    button: 'Redrive',
    done: 'The redrive has begun.',
    action: () => ({ action: 'redrive', from, jobId }),
  })
}

/** @param {string} text */
function reasonOf(text) {
  const failedReason = text.trim()
  return failedReason === '' ? {} : { failedReason }
}
