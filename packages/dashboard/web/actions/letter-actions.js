import { h } from '../base/dom.js'
import { deadQueueField, field, openAction } from './action-form.js'

/**
 * The dialog that puts dead letters back.
 * @param {readonly string[]} deadQueues the one to begin with first
 */
export function redriveDialog(deadQueues) {
  const from = deadQueueField('Queue of dead letters', deadQueues)
  const reason = h('input', { id: 'action-failed-reason', maxlength: 1024, autocomplete: 'off' })
  return {
    title: 'Redrive',
    note: 'Puts dead letters of this queue back into it, oldest first, each as soon as there is a place.',
    button: 'Redrive',
    done: 'The redrive has begun.',
    fields: [from.element, field('Only those whose reason contains', reason, 'Empty: all of them.')],
    action: () => ({ action: 'redrive', from: from.value, ...reasonOf(reason.value) }),
  }
}

/**
 * Opens the same for the letter of one job.
 * @param {string} queue
 * @param {string} from
 * @param {{ jobId: string, onDone: () => void }} terms
 */
export function openRedriveOf(queue, from, { jobId, onDone }) {
  openAction(queue, {
    title: `Redrive job ${jobId}`,
    note: 'Puts the job back into the queue with all its attempts, as soon as there is a place.',
    button: 'Redrive',
    done: 'The redrive has begun.',
    action: () => ({ action: 'redrive', from, jobId }),
    onDone,
  })
}

/**
 * Opens the dialog that drops dead letters.
 * @param {string} queue
 * @param {string} from
 * @param {() => void} onDone
 */
export function openDrop(queue, from, onDone) {
  const reason = h('input', { id: 'action-failed-reason', maxlength: 1024, autocomplete: 'off' })
  openAction(queue, {
    title: `Drop dead letters in ${from}`,
    note: 'Deletes dead letters of this queue, and what is left of their jobs. They cannot be brought back.',
    button: 'Drop',
    done: 'The dead letters are being dropped.',
    fields: [field('Only those whose reason contains', reason, 'Empty: all of them.')],
    action: () => ({ action: 'dropDeadLetters', from, ...reasonOf(reason.value) }),
    onDone,
  })
}

/**
 * The same for the letter of one job.
 * @param {string} queue
 * @param {string} from
 * @param {{ letter: import('../wire.d.ts').Letter, onDone: () => void }} terms
 */
export function openDropOf(queue, from, { letter: { id, letterId }, onDone }) {
  openAction(queue, {
    title: `Drop job ${id}`,
    note: 'Deletes the dead letter, and what is left of its job. It cannot be brought back.',
    button: 'Drop',
    done: 'The dead letter is dropped.',
    action: () => ({ action: 'dropDeadLetter', from, letterId }),
    onDone,
  })
}

/** @param {string} text */
function reasonOf(text) {
  const failedReason = text.trim()
  return failedReason === '' ? {} : { failedReason }
}
