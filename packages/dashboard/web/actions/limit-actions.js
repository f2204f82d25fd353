import { ActionBar } from './action-bar.js'
import { checklist } from './action-form.js'
import { FieldsForm } from './fields-form.js'

/**
 * @typedef {import('../wire.d.ts').LimitValue} LimitValue
 * @typedef {import('../wire.d.ts').KeyedLimit} KeyedLimit
 * @typedef {{ value: LimitValue, limit: KeyedLimit, title: string }} Changed
 */

const RATE = { name: 'rate', label: 'Rate', note: '10/s or 1000/min. Empty: no limit.' }
const BURST = { name: 'burst', label: 'Burst', note: 'Units that may pass back to back after idling.' }
const CONCURRENCY = { name: 'concurrency', label: 'Concurrency', note: 'Jobs that may run at once.' }

/** The fields that a limit has for one value. @param {KeyedLimit} limit */
function fieldsOf({ algorithm = 'gcra', tiers }) {
  const isBucket = ['gcra', 'token-bucket', 'leaky-bucket'].includes(algorithm)
  const own = algorithm === 'concurrency' ? [CONCURRENCY] : isBucket ? [RATE, BURST] : [RATE]
  if (tiers === undefined) return own
  const note = 'In place of that of each job. Rate and burst go before what it says.'
  return [{ name: 'tier', label: 'Tier', note, options: Object.keys(tiers) }, ...own]
}

/** @type {readonly import('./action-bar.js').Change<Changed>[]} */
const CHANGES = [
  {
    label: 'Change limit',
    dialog: ({ value: { keys, inForce }, limit, title }) => {
      const form = new FieldsForm('values', fieldsOf(limit), { ...inForce })
      return {
        title: `Change ${title}`,
        note: 'Only the fields changed here are set for this key, instead of what the shape says. A lower value applies to the next departure, a higher one at once.',
        button: 'Change',
        done: 'The limit of the key is changed.',
        fields: form.elements,
        forGood: 'Until it is cleared',
        action: () => ({ action: 'setLimit', limit: limit.name, keys, values: form.changes }),
      }
    },
  },
  {
    label: 'Clear settings',
    isFor: ({ value }) => Object.keys(value.overrides).length > 0,
    dialog: ({ value: { keys, overrides }, limit, title }) => {
      const list = checklist('Settings', Object.keys(overrides))
      return {
        title: `Clear settings of ${title}`,
        note: 'What the shape says applies again.',
        button: 'Clear',
        done: 'The settings are cleared.',
        fields: [list.element],
        action: () => ({ action: 'clearLimit', limit: limit.name, keys, fields: list.chosen }),
      }
    },
  },
]

/**
 * The buttons that change one value of a limit.
 * @param {string} queue
 * @param {() => void} onDone
 */
export function limitActions(queue, onDone) {
  return new ActionBar('Actions of the key', CHANGES, { queue: () => queue, onDone })
}
