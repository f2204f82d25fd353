import { ActionBar } from './action-bar.js'
import { checklist } from './action-form.js'
import { FieldsForm } from './fields-form.js'

/** @typedef {import('../wire.d.ts').Group} Group */

/** What resuming a group lifts: a pause, and what the downstream's answers hold. */
const HOLDS = ['paused', 'limited', 'slowed', 'crowded']

/** The fields that can be set for one group, in the order of the form. */
const FIELDS = /** @type {const} */ ([
  {
    name: 'rate',
    label: 'Rate',
    note: '10/s or 1000/min, within the rate of the queue. Empty: only the rate of the queue.',
  },
  { name: 'burst', label: 'Burst', note: 'Units that may leave back to back after idling.' },
  {
    ...{ name: 'concurrency', label: 'Concurrency', isText: true },
    note: 'Jobs that may run at once, or a share of the queue concurrency: 25%. Empty: only the limit of the queue.',
  },
  { name: 'capacity', label: 'Capacity', note: 'Jobs that may wait. Empty: only the limit of the queue.' },
  { name: 'weight', label: 'Weight', note: 'Its share of the rate, relative to other groups with jobs.', min: 0.001 },
  {
    ...{ name: 'order', label: 'Order', options: ['strict'] },
    note: 'Strict: while one of its jobs runs or will be retried, no other starts.',
  },
])

/** @type {readonly import('./action-bar.js').Change<Group>[]} */
const CHANGES = [
  {
    label: 'Change group',
    dialog: ({ id, inForce }) => {
      const form = new FieldsForm('settings', FIELDS, { ...inForce })
      return {
        title: `Change group ${id}`,
        note: 'Only the fields changed here are set for this group, instead of the defaults of the queue.',
        button: 'Change',
        done: 'The group is changed.',
        fields: form.elements,
        forGood: 'Until it is cleared',
        action: () => ({ action: 'setGroup', group: id, settings: form.changes }),
      }
    },
  },
  {
    label: 'Clear settings',
    isFor: (group) => settingsOf(group).length > 0,
    dialog: (group) => {
      const list = checklist('Settings', settingsOf(group))
      return {
        title: `Clear settings of group ${group.id}`,
        note: 'The defaults of the queue apply again.',
        button: 'Clear',
        done: 'The settings are cleared.',
        fields: [list.element],
        action: () => ({ action: 'clearGroup', group: group.id, fields: list.chosen }),
      }
    },
  },
  {
    label: 'Pause group',
    // As with a queue, a pause that ends by itself can be replaced.
    isFor: ({ overrides }) => overrides.paused === undefined || overrides.paused.until !== undefined,
    dialog: ({ id: group, bound }) => ({
      title: `Pause group ${group}`,
      note:
        'No job of the group starts during the pause; other groups continue. Running jobs continue, and ' +
        `${bound ? 'new jobs are accepted while there is room' : 'nothing bounds how many new jobs it takes'}.`,
      button: 'Pause',
      done: 'The group is paused.',
      forGood: 'Until it is resumed',
      action: () => ({ action: 'pauseGroup', group }),
    }),
  },
  {
    label: 'Resume group',
    isFor: ({ overrides }) => HOLDS.some((hold) => overrides[hold] !== undefined),
    dialog: ({ id: group }) => ({
      title: `Resume group ${group}`,
      note: 'Lifts the pause of the group, and any hold by feedback. Its jobs leave again at its rate.',
      button: 'Resume',
      done: 'The group is resumed.',
      action: () => ({ action: 'resumeGroup', group }),
    }),
  },
]

/** @param {Group} group */
function settingsOf({ overrides }) {
  return FIELDS.map(({ name }) => name).filter((name) => overrides[name] !== undefined)
}

/**
 * The buttons that change one group.
 * @param {string} queue
 * @param {() => void} onDone
 */
export function groupActions(queue, onDone) {
  return new ActionBar('Actions of the group', CHANGES, { queue: () => queue, onDone })
}
