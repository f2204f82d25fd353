import { openAction } from './action-form.js'
import { FieldsForm } from './fields-form.js'

/** The fields of a shape that can be changed here, in the order of the form. */
const FIELDS = /** @type {const} */ ([
  { name: 'rate', label: 'Rate', note: '50/s, 1000/min or 100/15min. Empty: jobs are not paced.' },
  { name: 'burst', label: 'Burst', note: 'Units that may leave back to back after idling.' },
  { name: 'capacity', label: 'Capacity', note: 'Jobs that may wait. Empty: no limit.' },
  { name: 'concurrency', label: 'Concurrency', note: 'Jobs that may run at once, over all workers. Empty: no limit.' },
])

/**
 * Opens the form for the limits of a queue.
 * @param {import('../wire.d.ts').Queue} queue
 */
export function openShapeForm({ name, shape }) {
  const form = new FieldsForm('shape', FIELDS, { ...shape })
  openAction(name, {
    title: 'Change limits',
    note: 'Only the fields changed here become overrides. They apply to every slot that is not granted yet.',
    button: 'Change',
    done: 'The limits are changed.',
    fields: form.elements,
    forGood: 'Until it is cleared',
    action: () => ({ action: 'setShape', shape: form.changes }),
  })
}
