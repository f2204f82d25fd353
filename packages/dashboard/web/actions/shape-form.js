import { FieldsForm } from './fields-form.js'

/** The fields of a shape that can be changed here, in the order of the form. */
const FIELDS = /** @type {const} */ ([
  { name: 'rate', label: 'Rate', note: '50/s, 1000/min or 100/15min. Empty: jobs are not paced.' },
  { name: 'burst', label: 'Burst', note: 'Units that may leave back to back after idling.' },
  { name: 'capacity', label: 'Capacity', note: 'Jobs that may wait. Empty: no limit.' },
  {
    name: 'concurrency',
    label: 'Concurrency',
    note: 'Jobs that may run at once, across all workers. Empty: no limit.',
  },
  {
    name: 'keepFree',
    label: 'Keep free',
    note: 'Places of the concurrency kept for groups with no running job. Empty: none.',
  },
  {
    name: 'rampUp',
    label: 'Slow start',
    isText: true,
    note: 'JSON, such as {"from":0.1,"overMs":60000}: how the rate rises after a pause. Empty: at once.',
  },
])

/**
 * The form for the limits of a queue.
 * @param {import('../wire.d.ts').Queue} queue
 */
export function shapeDialog({ shape }) {
  const groups = shape?.groups
  const rampUp = shape?.rampUp && JSON.stringify(shape.rampUp)
  const fields = groups ? FIELDS : FIELDS.filter((one) => one.name !== 'keepFree')
  const form = new FieldsForm('shape', fields, { ...shape, keepFree: groups?.keepFree, rampUp })
  return {
    title: 'Change limits',
    note: 'Only the fields changed here become overrides. They apply to every slot that is not granted yet.',
    button: 'Change',
    done: 'The limits are changed.',
    fields: form.elements,
    forGood: 'Until it is cleared',
    action: () => ({ action: 'setShape', shape: shapeOf(form.changes, groups) }),
  }
}

/**
 * The fields as `setShape` takes them: one of the groups goes with the others of them.
 * @param {Record<string, string | number | null>} changes
 * @param {NonNullable<import('../wire.d.ts').Queue['shape']>['groups']} groups
 */
function shapeOf({ keepFree, rampUp, ...changes }, groups) {
  const { keepFree: _, ...others } = groups ?? {}
  const ofGroups = keepFree === null ? others : { ...others, keepFree }
  return {
    ...changes,
    ...(keepFree === undefined ? {} : { groups: ofGroups }),
    ...(rampUp === undefined ? {} : { rampUp: rampUp === null ? null : rampUpOf(String(rampUp)) }),
  }
}

/** @param {string} text */
function rampUpOf(text) {
  try {
    return JSON.parse(text)
  } catch {
    throw new Error('Slow start must be JSON such as {"from":0.1,"overMs":60000}.')
  }
}
