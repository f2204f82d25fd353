import { limitActions } from '../actions/limit-actions.js'
import { ApiError, getLimitValue, getLimitValues } from '../base/api.js'
import { h, setText } from '../base/dom.js'
import { count, duration, number, plural, time } from '../base/format.js'
import { keysText, placeHolderText } from '../base/hold-text.js'
import { Table } from '../base/table.js'
import { refreshWhileSeen, showDetail } from './detail.js'
import { ruleText, setFacts } from './groups.js'
import { HistoryTable } from './history-table.js'

/**
 * @typedef {import('../wire.d.ts').KeyedLimit} KeyedLimit
 * @typedef {import('../wire.d.ts').LimitRow} LimitRow
 * @typedef {import('../wire.d.ts').LimitValue} LimitValue
 */

/** Of the jobs that hold its places, so many are named. */
const HOLDERS = 5

/** The values of limits by keys that most lanes wait for, and of which most jobs run. */
export class LimitKeys {
  #name
  #rows
  #isAllowed = false
  /** @type {readonly KeyedLimit[]} */
  #limits = []
  #summary = h('p', { class: 'muted' })
  #error = h('p', { class: 'error', role: 'alert' })
  #limit = h('select', { id: 'key-limit', onchange: () => this.#showInputs() })
  #inputs = h('span')
  #table
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
    this.#table = /** @type {Table<LimitRow>} */ (
      new Table('Keys', {
        columns: keyColumns((limit, keys) => this.#open(limit, keys)),
        key: ({ limit, keys }) => JSON.stringify([limit, keys]),
        empty: 'No job runs or waits that a limit counts.',
      })
    )
    this.element = h(
      'section',
      { class: 'card short', 'aria-labelledby': 'keys-title' },
      h('div', { class: 'section-head' }, h('h2', { id: 'keys-title' }, 'Keys'), this.#form()),
      this.#summary,
      this.#error,
      this.#table.element,
    )
    this.close = refreshWhileSeen(this.element, () => void this.#read())
  }

  /**
   * @param {readonly KeyedLimit[]} limits of the queue
   * @param {boolean} isAllowed whether values can be changed
   */
  show(limits, isAllowed) {
    this.#isAllowed = isAllowed
    const isNew = JSON.stringify(limits) !== JSON.stringify(this.#limits)
    this.#limits = limits
    this.element.hidden = limits.length === 0
    if (!isNew || limits.length === 0) return
    this.#limit.replaceChildren(...limits.map(({ name }) => h('option', { value: name }, name)))
    this.#showInputs()
    void this.#read()
  }

  async #read() {
    try {
      const { rows, values, otherLanes } = await getLimitValues(this.#name)
      setText(this.#summary, summaryText(values, otherLanes))
      this.#table.show(rows)
      setText(this.#error, '')
    } catch (error) {
      setText(this.#error, error instanceof ApiError ? error.message : 'The keys could not be read.')
    }
  }

  /**
   * @param {string} name of the limit
   * @param {Readonly<Record<string, string>>} keys
   */
  #open(name, keys) {
    const limit = this.#limits.find((one) => one.name === name)
    if (!limit) return
    showKey(this.#name, limit, keys, { rows: this.#rows, isAllowed: this.#isAllowed, onClose: () => void this.#read() })
  }

  #form() {
    const onsubmit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault()
      const inputs = [...this.#inputs.querySelectorAll('input')]
      this.#open(this.#limit.value, Object.fromEntries(inputs.map(({ name, value }) => [name, value.trim()])))
    }
    const label = h('label', { for: 'key-limit' }, 'Find key')
    const button = h('button', { type: 'submit' }, 'Show')
    return h('form', { class: 'toolbar wraps', onsubmit }, label, this.#limit, this.#inputs, button)
  }

  /** A field for each key that the chosen limit counts by. */
  #showInputs() {
    const limit = this.#limits.find(({ name }) => name === this.#limit.value)
    const inputs = [limit?.by ?? []]
      .flat()
      .map((name) =>
        h('input', { name, placeholder: name, 'aria-label': name, required: true, autocomplete: 'off', size: 12 }),
      )
    this.#inputs.replaceChildren(...inputs)
  }
}

/**
 * @param {number} values
 * @param {number} otherLanes
 */
function summaryText(values, otherLanes) {
  const waits = values === 0 ? 'No lane waits for a key' : `Lanes wait for ${plural(values, 'key')}`
  const others = otherLanes === 0 ? '' : `; ${count(otherLanes)} of them for keys that are not shown`
  return `${waits}${others}. Shown are the keys that most lanes wait for, and those of which most jobs run.`
}

/**
 * @param {(limit: string, keys: Readonly<Record<string, string>>) => void} open
 * @returns {import('../base/table.js').Column<LimitRow>[]}
 */
function keyColumns(open) {
  return [
    { label: 'Limit', text: ({ limit }) => limit },
    {
      label: 'Key',
      text: ({ keys }) => keysText(keys),
      element: ({ limit, keys }) =>
        h('button', { type: 'button', class: 'quiet', onclick: () => open(limit, keys) }, keysText(keys)),
    },
    { label: 'In use', isNumber: true, text: useText },
    { label: 'Lanes that wait', isNumber: true, text: ({ waitingLanes }) => count(waitingLanes) },
  ]
}

/** @param {Pick<LimitRow, 'used' | 'most'>} use */
function useText({ used, most }) {
  return used === undefined ? 'no limit' : `${number(used)} of ${number(most)}`
}

/**
 * Shows one value of a limit in a dialog, which refreshes while it is open.
 * @param {string} queue
 * @param {KeyedLimit} limit
 * @param {Readonly<Record<string, string>>} keys
 * @param {{ rows: import('../jobs/job-columns.js').RowTerms, isAllowed: boolean, onClose: () => void }} terms
 */
function showKey(queue, limit, keys, { rows, isAllowed, onClose }) {
  const title = `limit ${limit.name} of ${keysText(keys)}`
  const actions = limitActions(queue, () => lookAgain())
  const history = new HistoryTable()
  const look = async () => {
    const value = await getLimitValue(queue, limit.name, keys)
    // A shared limit is the same in all queues.
    if (isAllowed && !limit.shared) actions.show({ value, limit, title })
    history.show(value.history)
    const cause = value.retryAfterMs === 0 ? undefined : causeOf(limit)
    return { sentence: sentence(value), cause, facts: factsOf(value, limit), jobs: value.jobs }
  }
  const more = [h('h3', {}, 'History'), history.element]
  const terms = { of: 'key', empty: 'No job waits for this key.', rows, actions: actions.element, more, look, onClose }
  const lookAgain = showDetail(title.charAt(0).toUpperCase() + title.slice(1), terms)
}

/** @param {KeyedLimit} limit */
function causeOf({ algorithm }) {
  return algorithm === 'concurrency' ? 'concurrency' : 'limits'
}

/** @param {LimitValue} value */
function sentence(value) {
  const { used, remaining, retryAfterMs, resetAt, opensAt, day, days } = value
  const planned = day === undefined ? '' : ` Day ${day} of ${days} of its plan.`
  if (used === undefined) return `This key has no limit.${planned}`
  if (opensAt !== undefined) return `${useText(value)} in use, closed by its schedule until ${time(opensAt)}.${planned}`
  const next = retryAfterMs === undefined ? 'a job has to end first' : `the next may go in ${duration(retryAfterMs)}`
  const frees = retryAfterMs === 0 ? `${count(remaining)} left` : `nothing left: ${next}`
  const all = used > 0 && resetAt !== undefined ? `, all at ${time(resetAt)}` : ''
  return `${useText(value)} in use, ${frees}${all}.${planned}`
}

/**
 * @param {LimitValue} value
 * @param {KeyedLimit} limit
 * @returns {[string, string][]}
 */
function factsOf({ inForce, overrides, waitingLanes, holders }, { algorithm = 'gcra', unit, shared }) {
  const kind = [algorithm, unit && `counts ${unit}`, shared && 'shared with other queues and limiters, changed for all']
  return /** @type {[string, string][]} */ ([
    ['Limit', kind.filter(Boolean).join(', ')],
    ...Object.entries(inForce).map(([field, value]) => [field, ruleText(field, value)]),
    ...setFacts(overrides),
    ['Lanes that wait', count(waitingLanes)],
    ...holders.slice(0, HOLDERS).map((holder) => ['Place held by', placeHolderText(holder)]),
    ...(holders.length > HOLDERS ? [['Other holders', count(holders.length - HOLDERS)]] : []),
  ])
}
