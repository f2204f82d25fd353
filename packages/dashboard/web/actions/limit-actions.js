import { h } from '../base/dom.js'
import { checklist, openAction } from './action-form.js'
import { FieldsForm } from './fields-form.js'

/**
 * @typedef {import('../wire.d.ts').LimitValue} LimitValue
 * @typedef {import('../wire.d.ts').KeyedLimit} KeyedLimit
 * @typedef {{ queue: string, limit: KeyedLimit, title: string, onDone: () => void }} Terms
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

/** The buttons that change one value of a limit. Each opens a dialog that requires a reason. */
export class LimitActions {
  /** @type {LimitValue | undefined} */
  #value
  #terms
  #set = this.#button('Change limit', openSet)
  #clear = this.#button('Clear settings', openClear)
  element = h(
    'div',
    { class: 'actions', role: 'group', 'aria-label': 'Actions of the key', hidden: true },
    ...[this.#set, this.#clear],
  )

  /** @param {Terms} terms onDone: called after a change */
  constructor(terms) {
    this.#terms = terms
  }

  /** @param {LimitValue} value */
  show(value) {
    this.#value = value
    this.element.hidden = false
    this.#clear.hidden = Object.keys(value.overrides).length === 0
  }

  /**
   * @param {string} label
   * @param {(value: LimitValue, terms: Terms) => void} open
   */
  #button(label, open) {
    return h('button', { type: 'button', onclick: () => this.#value && open(this.#value, this.#terms) }, label)
  }
}

/**
 * @param {LimitValue} value
 * @param {Terms} terms
 */
function openSet({ keys, inForce }, { queue, limit, title, onDone }) {
  const form = new FieldsForm('values', fieldsOf(limit), { ...inForce })
  openAction(queue, {
    title: `Change ${title}`,
    note: 'Only the fields changed here are set for this key, instead of what the shape says. A lower value applies to the next departure, a higher one at once.',
    button: 'Change',
    done: 'The limit of the key is changed.',
    fields: form.elements,
    forGood: 'Until it is cleared',
    action: () => ({ action: 'setLimit', limit: limit.name, keys, values: form.changes }),
    onDone,
  })
}

/**
 * @param {LimitValue} value
 * @param {Terms} terms
 */
function openClear({ keys, overrides }, { queue, limit, title, onDone }) {
  const list = checklist('Settings', Object.keys(overrides))
  openAction(queue, {
    title: `Clear settings of ${title}`,
    note: 'What the shape says applies again.',
    button: 'Clear',
    done: 'The settings are cleared.',
    fields: [list.element],
    action: () => ({ action: 'clearLimit', limit: limit.name, keys, fields: list.chosen }),
    onDone,
  })
}
