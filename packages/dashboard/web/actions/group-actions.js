import { h } from '../base/dom.js'
import { checklist, openAction } from './action-form.js'
import { FieldsForm } from './fields-form.js'

/** What resuming a group lifts: a pause, and what the downstream's answers hold. */
const HOLDS = ['paused', 'limited', 'slowed', 'crowded']

/** The fields that can be set for one group, in the order of the form. */
const FIELDS = /** @type {const} */ ([
  {
    name: 'rate',
    label: 'Rate',
    note: '10/s or 1000/min, within the rate of the queue. Empty: only that of the queue.',
  },
  { name: 'burst', label: 'Burst', note: 'Units that may leave back to back after idling.' },
  {
    ...{ name: 'concurrency', label: 'Concurrency', isText: true },
    note: 'Jobs that may run at once, or a share of those of the queue: 25%. Empty: only the limit of the queue.',
  },
  { name: 'capacity', label: 'Capacity', note: 'Jobs that may wait. Empty: only the limit of the queue.' },
  { name: 'weight', label: 'Weight', note: 'Its part of the rate, relative to other groups with jobs.', min: 0.001 },
  {
    ...{ name: 'order', label: 'Order', options: ['strict'] },
    note: 'Strict: while one of its jobs runs or comes again, no other starts.',
  },
])

/** The buttons that change one group. Each opens a dialog that requires a reason. */
export class GroupActions {
  /** @type {import('../wire.d.ts').Group | undefined} */
  #group
  #terms
  #set = this.#button('Change group', openSet)
  #clear = this.#button('Clear settings', openClear)
  #pause = this.#button('Pause group', openPause)
  #resume = this.#button('Resume group', openResume)
  element = h(
    'div',
    { class: 'actions', role: 'group', 'aria-label': 'Actions of the group', hidden: true },
    ...[this.#set, this.#clear, this.#pause, this.#resume],
  )

  /**
   * @param {string} queue
   * @param {() => void} onDone called after a change
   */
  constructor(queue, onDone) {
    this.#terms = { queue, onDone }
  }

  /** @param {import('../wire.d.ts').Group} group */
  show(group) {
    const { overrides } = group
    this.#group = group
    this.element.hidden = false
    this.#clear.hidden = settingsOf(group).length === 0
    // As with a queue, a pause that ends by itself can be replaced.
    this.#pause.hidden = overrides.paused !== undefined && overrides.paused.until === undefined
    this.#resume.hidden = !HOLDS.some((hold) => overrides[hold] !== undefined)
  }

  /**
   * @param {string} label
   * @param {(group: import('../wire.d.ts').Group, terms: Terms) => void} open
   */
  #button(label, open) {
    return h('button', { type: 'button', onclick: () => this.#group && open(this.#group, this.#terms) }, label)
  }
}

/** @typedef {{ queue: string, onDone: () => void }} Terms */

/** @param {import('../wire.d.ts').Group} group */
function settingsOf({ overrides }) {
  return FIELDS.map(({ name }) => name).filter((name) => overrides[name] !== undefined)
}

/**
 * @param {import('../wire.d.ts').Group} group
 * @param {Terms} terms
 */
function openSet({ id, inForce }, { queue, onDone }) {
  const form = new FieldsForm('settings', FIELDS, { ...inForce })
  openAction(queue, {
    title: `Change group ${id}`,
    note: 'Only the fields changed here are set for this group, instead of the defaults of the queue.',
    button: 'Change',
    done: 'The group is changed.',
    fields: form.elements,
    forGood: 'Until it is cleared',
    action: () => ({ action: 'setGroup', group: id, settings: form.changes }),
    onDone,
  })
}

/**
 * @param {import('../wire.d.ts').Group} group
 * @param {Terms} terms
 */
function openClear(group, { queue, onDone }) {
  const list = checklist('Settings', settingsOf(group))
  openAction(queue, {
    title: `Clear settings of group ${group.id}`,
    note: 'The defaults of the queue apply again.',
    button: 'Clear',
    done: 'The settings are cleared.',
    fields: [list.element],
    action: () => ({ action: 'clearGroup', group: group.id, fields: list.chosen }),
    onDone,
  })
}

/**
 * @param {import('../wire.d.ts').Group} group
 * @param {Terms} terms
 */
function openPause({ id: group, bound }, { queue, onDone }) {
  const room = bound ? 'new jobs are accepted while there is room' : 'nothing bounds how many new jobs it takes'
  openAction(queue, {
    title: `Pause group ${group}`,
    note: `No job of the group starts during the pause; other groups continue. Running jobs continue, and ${room}.`,
    button: 'Pause',
    done: 'The group is paused.',
    forGood: 'Until it is resumed',
    action: () => ({ action: 'pauseGroup', group }),
    onDone,
  })
}

/**
 * @param {import('../wire.d.ts').Group} group
 * @param {Terms} terms
 */
function openResume({ id: group }, { queue, onDone }) {
  openAction(queue, {
    title: `Resume group ${group}`,
    note: 'Lifts the pause of the group, and what answers of the downstream hold. Its jobs leave again at its rate.',
    button: 'Resume',
    done: 'The group is resumed.',
    action: () => ({ action: 'resumeGroup', group }),
    onDone,
  })
}
