import { scheduleText, valueText } from '../base/change-text.js'
import { duration, NONE, number, perSecond, rate, time } from '../base/format.js'
import { concurrencyText } from '../base/queue-text.js'
import { Table } from '../base/table.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {{ key: string, rule: string, value: string, where: string }} Rule
 */

/**
 * What each rule is called, in their order. Limits have rows of their own; the others limit nothing.
 * @type {Readonly<Record<Exclude<import('sluice').ShapeField, 'limits' | 'horizonMs' | 'onStateLoss' | 'audit'>, string>>}
 */
const RULES = {
  rate: 'Rate',
  burst: 'Burst',
  capacity: 'Capacity',
  capacityHorizonMs: 'Capacity counts delayed jobs due within',
  reservedPlaces: 'Reserved places',
  overflow: 'Overflow',
  overflowTo: 'Dropped jobs go to',
  maxWaitMs: 'Longest wait',
  onClosed: 'While its schedule is closed',
  concurrency: 'Concurrency',
  groups: 'Groups',
  priorityAgeingMs: 'One level more important after',
  rampUp: 'Slow start',
  durability: 'Replicas that confirm',
  mode: 'Mode',
  maxLatenessMs: 'Longest lateness',
}
const FIELDS = /** @type {[keyof typeof RULES, string][]} */ (Object.entries(RULES))

/** The rules that a queue obeys: its shape, its limits, and feedback from the downstream. */
export class LimitsTable {
  #table = new Table('Limits', {
    columns: /** @type {import('../base/table.js').Column<Rule>[]} */ ([
      { label: 'Rule', text: ({ rule }) => rule },
      { label: 'Value', text: ({ value }) => value },
      { label: 'Where from', text: ({ where }) => where, isWide: true },
    ]),
    key: ({ key }) => key,
    empty: 'The queue has no shape: nothing is limited.',
  })
  element = this.#table.element

  /** @param {Queue} queue */
  show(queue) {
    this.#table.show([...shapeRules(queue), ...limitRules(queue), ...feedbackRules(queue)])
  }
}

/**
 * @param {Queue} queue
 * @returns {Rule[]}
 */
function shapeRules({ shape, concurrency }) {
  if (!shape) return []
  return FIELDS.flatMap(([field, rule]) => {
    const value = shape[field]
    const isOverridden = shape.overrides[field] !== undefined
    if (value === undefined && !isOverridden) return []
    return [
      {
        key: field,
        rule,
        value: inForce(shape, field, concurrency),
        where: whereFrom(shape, field),
      },
    ]
  })
}

/**
 * @param {NonNullable<Queue['shape']>} shape
 * @param {keyof typeof RULES} field
 * @param {Queue['concurrency']} concurrency
 */
function inForce(shape, field, concurrency) {
  if (field === 'concurrency' && concurrency) return concurrencyText({ concurrency })
  if (field === 'rate' && shape.schedule) return scheduleText(shape.schedule)
  return shownValue(field, shape[field])
}

/**
 * @param {string} field
 * @param {unknown} value
 */
function shownValue(field, value) {
  if (value === undefined) return 'no limit'
  if (field.endsWith('Ms')) return duration(Number(value))
  return valueText(field, value)
}

/**
 * @param {NonNullable<Queue['shape']>} shape
 * @param {string} field
 */
function whereFrom({ overrides, declared }, field) {
  const override = overrides[field]
  if (!override) return declared[field] ? 'declared' : 'default'
  const { by, reason, until } = override
  const words = [`override by ${by}`, reason && `“${reason}”`, until ? `until ${time(until)}` : 'until it is cleared']
  const hidden = declared[field] === undefined ? '' : `; declared ${valueText(field, declared[field]?.value)}`
  return words.filter(Boolean).join(', ') + hidden
}

/** @param {NonNullable<NonNullable<NonNullable<Queue['shape']>['limits']>[number]['rate']>} given */
function limitRate(given) {
  if (typeof given === 'string') return rate(given)
  if ('schedule' in given) return scheduleText(given)
  return `${given.limit} in ${duration(given.period)}`
}

/**
 * @param {Queue} queue
 * @returns {Rule[]}
 */
function limitRules({ shape }) {
  return (shape?.limits ?? []).map((limit) => {
    const { name, algorithm = 'gcra', by, unit, shared = false, mode = 'enforce' } = limit
    const pace = limit.rate && limitRate(limit.rate)
    const value = limit.concurrency === undefined ? (pace ?? NONE) : `${number(limit.concurrency)} at once`
    const burst = limit.burst === undefined ? '' : `, burst ${number(limit.burst)}`
    const each = by && `each ${[by].flat().join(' and ')} by itself`
    const kind = [algorithm, each, unit && `counts ${unit}`, shared && 'shared', mode !== 'enforce' && mode]
    return { key: `limit ${name}`, rule: `Limit ${name}`, value: value + burst, where: kind.filter(Boolean).join(', ') }
  })
}

/**
 * @param {Queue} queue
 * @returns {Rule[]}
 */
function feedbackRules({ feedback }) {
  if (!feedback) return []
  const rules = Object.entries(feedback.rates).map(([name, value]) => ({
    key: `feedback ${name}`,
    rule: `Feedback: ${name}`,
    value: perSecond(value),
    where: feedback.last?.reason ?? '',
  }))
  if (feedback.concurrency === undefined) return rules
  const value = number(feedback.concurrency)
  return [
    ...rules,
    { key: 'feedback concurrency', rule: 'Feedback: concurrency', value, where: feedback.last?.reason ?? '' },
  ]
}
