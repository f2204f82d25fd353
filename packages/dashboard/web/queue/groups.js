import { groupActions } from '../actions/group-actions.js'
import { ApiError, getGroup, getGroups } from '../base/api.js'
import { scheduleText } from '../base/change-text.js'
import { h, setText } from '../base/dom.js'
import { count, duration, NONE, number, rate, time } from '../base/format.js'
import { keysText, placeHolderText } from '../base/hold-text.js'
import { Table } from '../base/table.js'
import { refreshWhileSeen, showDetail } from './detail.js'

/**
 * @typedef {import('../wire.d.ts').Group} Group
 * @typedef {import('../wire.d.ts').GroupInDetail} GroupInDetail
 */

const STATUS = {
  waiting: 'in line',
  limited: 'held by its rate',
  maxed: 'at its limit on running jobs',
  paused: 'paused',
  idle: 'no job waits',
}

/** Of the jobs that hold its places, so many are named. */
const HOLDERS = 3

/** The colour of what holds a group. @type {Partial<Record<keyof typeof STATUS, string>>} */
const CAUSE_OF = { limited: 'rate', maxed: 'concurrency', paused: 'pause' }

/** The groups of a queue that have waited longest, have the most jobs, or are held; hidden where it has none. */
export class Groups {
  #name
  #rows
  #isAllowed = false
  #counts = h('p', { class: 'muted' })
  #error = h('p', { class: 'error', role: 'alert' })
  #id = h('input', { id: 'group-id', required: true, autocomplete: 'off', size: 14 })
  #table
  /** Settles when the groups have been read, if there are any. @type {Promise<void> | undefined} */
  read
  element
  /** Stops reading. */
  close

  /**
   * @param {string} name of the queue
   * @param {import('../jobs/job-columns.js').RowTerms} rows
   */
  constructor(name, rows) {
    this.#name = name
    this.#rows = rows
    this.#table = /** @type {Table<Group>} */ (
      new Table('Groups', {
        columns: groupColumns((id) => this.#open(id)),
        key: ({ id }) => id,
        empty: 'No job of a group waits.',
      })
    )
    this.element = h(
      'section',
      { class: 'card short', 'aria-labelledby': 'groups-title', hidden: true },
      h('div', { class: 'section-head' }, h('h2', { id: 'groups-title' }, 'Groups'), this.#form()),
      this.#counts,
      this.#error,
      this.#table.element,
    )
    this.close = refreshWhileSeen(this.element, () => void this.#read())
  }

  /**
   * @param {import('../wire.d.ts').Queue} queue
   * @param {boolean} isAllowed whether groups can be changed
   */
  show({ groups }, isAllowed) {
    this.#isAllowed = isAllowed
    const wasHidden = this.element.hidden
    this.element.hidden = groups === undefined
    if (!groups) return
    if (wasHidden) this.read = this.#read()
  }

  async #read() {
    try {
      const { counts, oldest, largest, held } = await getGroups(this.#name)
      setText(this.#counts, countsText(counts))
      const rows = new Map([...oldest, ...largest, ...held].map((row) => [row.id, row]))
      this.#table.show([...rows.values()].sort((one, other) => (other.headAgeMs ?? 0) - (one.headAgeMs ?? 0)))
      setText(this.#error, '')
    } catch (error) {
      setText(this.#error, error instanceof ApiError ? error.message : 'The groups could not be read.')
    }
  }

  /** @param {string} id */
  #open(id) {
    showGroup(this.#name, id, { rows: this.#rows, isAllowed: this.#isAllowed, onClose: () => void this.#read() })
  }

  #form() {
    const onsubmit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault()
      this.#open(this.#id.value.trim())
    }
    const label = h('label', { for: 'group-id' }, 'Find group')
    return h('form', { class: 'toolbar', onsubmit }, label, this.#id, h('button', { type: 'submit' }, 'Show'))
  }
}

/** @param {import('../wire.d.ts').Groups['counts']} counts */
function countsText({ waiting, limited, maxed, paused }) {
  const held = [
    limited > 0 && `${count(limited)} held by a rate`,
    maxed > 0 && `${count(maxed)} held by running jobs`,
    paused > 0 && `${count(paused)} paused`,
  ]
  const parts = [`${count(waiting)} in line`, ...held.filter(Boolean)]
  return `${parts.join(', ')}. Shown are those that have waited longest, have the most jobs, or are held.`
}

/**
 * @param {(id: string) => void} open
 * @returns {import('../base/table.js').Column<Group>[]}
 */
function groupColumns(open) {
  return [
    {
      label: 'Group',
      text: ({ id }) => id,
      element: ({ id }) => h('button', { type: 'button', class: 'quiet', onclick: () => open(id) }, id),
    },
    { label: 'Status', text: statusText },
    { label: 'Waiting', isNumber: true, text: ({ waiting }) => count(waiting) },
    { label: 'Share', isNumber: true, text: ({ share }) => `${number(Math.round(share * 1000) / 10)}%` },
    { label: 'Running', isNumber: true, text: ({ active }) => (active === undefined ? NONE : count(active)) },
    { label: 'Head age', isNumber: true, text: ({ headAgeMs }) => duration(headAgeMs) },
    { label: 'Rate', text: ({ inForce }) => rateText(inForce.rate) },
    { label: 'Set by', isWide: true, text: setByText },
  ]
}

/** @param {Group} group */
function statusText({ status, until, heldBy, heldKeys }) {
  const of = heldKeys === undefined ? '' : ` of ${keysText(heldKeys)}`
  const what = heldBy === undefined ? STATUS[status] : `held by limit ${heldBy}${of}`
  return until === undefined ? what : `${what} until ${time(until)}`
}

/** @param {import('sluice').GroupFields['rate']} given */
function rateText(given) {
  if (typeof given === 'string') return rate(given)
  return given && 'schedule' in given ? scheduleText(given) : NONE
}

/** @param {Group} group */
function setByText({ overrides }) {
  const entries = Object.entries(overrides)
  return (
    entries.map(([field, { by, reason }]) => `${field} by ${by}${reason === '' ? '' : `: ${reason}`}`).join('; ') ||
    NONE
  )
}

/**
 * Shows one group in a dialog, which refreshes while it is open.
 * @param {string} queue
 * @param {string} id
 * @param {{ rows: import('../jobs/job-columns.js').RowTerms, isAllowed: boolean, onClose: () => void }} terms
 */
function showGroup(queue, id, { rows, isAllowed, onClose }) {
  const actions = groupActions(queue, () => lookAgain())
  const look = async () => {
    const group = await getGroup(queue, id)
    if (isAllowed) actions.show(group)
    return { sentence: sentence(group), cause: CAUSE_OF[group.status], facts: factsOf(group), jobs: group.jobs }
  }
  const terms = { of: 'group', empty: 'No job of this group waits.', rows, actions: actions.element, look, onClose }
  const lookAgain = showDetail(`Group ${id}`, terms)
}

/** @param {GroupInDetail} group */
function sentence(group) {
  const text = statusText(group)
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

/** @param {GroupInDetail} group */
function placesText({ waiting, delayed, bound }) {
  const held = count(waiting + delayed)
  if (!bound) return `${held}, without a bound`
  return `${held} of ${count(bound.jobs)}, by ${bound.by === 'share' ? 'what is free in the queue' : 'its capacity'}`
}

/**
 * @param {GroupInDetail} group
 * @returns {[string, string][]}
 */
function factsOf(group) {
  const { waiting, active, share, headAgeMs, inForce, overrides, holders } = group
  return /** @type {[string, string][]} */ ([
    ['Waiting', `${count(waiting)}, ${number(Math.round(share * 1000) / 10)}% of those of all groups`],
    ['Places', placesText(group)],
    ['Running', active === undefined ? 'not counted' : count(active)],
    ['Head age', duration(headAgeMs)],
    ...holders.slice(0, HOLDERS).map((holder) => ['Place held by', placeHolderText(holder)]),
    ...Object.entries(inForce).map(([field, value]) => [field, ruleText(field, value)]),
    ...setFacts(overrides),
  ])
}

/**
 * @param {string} field
 * @param {unknown} value
 */
export function ruleText(field, value) {
  return field === 'rate' ? rateText(/** @type {import('sluice').GroupFields['rate']} */ (value)) : String(value)
}

/**
 * What was set, by whom, why and until when.
 * @param {Group['overrides']} overrides
 * @returns {[string, string][]}
 */
export function setFacts(overrides) {
  return Object.entries(overrides).map(([field, { by, reason, setAt, until }]) => [
    `${field} set`,
    [`by ${by}`, reason, `at ${time(setAt)}`, until && `until ${time(until)}`].filter(Boolean).join(', '),
  ])
}
