import { h } from '../base/dom.js'
import { field, openAction } from './action-form.js'

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
  const controls = FIELDS.map(({ name }) => {
    const value = String(shape?.[name] ?? '')
    const type =
      name === 'rate'
        ? { type: 'text', autocapitalize: 'off' }
        : { type: 'number', min: 1, step: 1, inputmode: 'numeric' }
    return h('input', { id: `shape-${name}`, value, autocomplete: 'off', ...type })
  })
  openAction(name, {
    title: 'Change limits',
    note: 'Only the fields changed here become overrides. They apply to every slot that is not granted yet.',
    button: 'Change',
    done: 'The limits are changed.',
    fields: FIELDS.map(({ label, note }, i) => field(label, /** @type {HTMLInputElement} */ (controls[i]), note)),
    forGood: 'Until it is cleared',
    action: () => ({ action: 'setShape', shape: changesOf(controls) }),
  })
}

/**
 * @param {readonly HTMLInputElement[]} controls
 * @returns {Record<string, string | number | null>} null means no limit
 */
function changesOf(controls) {
  const changed = FIELDS.flatMap(({ name }, i) => {
    const { value, defaultValue } = controls[i] ?? { value: '', defaultValue: '' }
    const text = value.trim()
    if (text === defaultValue) return []
    return [[name, text === '' ? null : name === 'rate' ? text : Number(text)]]
  })
  if (changed.length === 0) throw new Error('Nothing is changed yet.')
  return Object.fromEntries(changed)
}
