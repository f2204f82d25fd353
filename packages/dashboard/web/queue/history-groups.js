import { kindOf, whatOf, writerOf } from '../base/change-text.js'
import { number, plural, time } from '../base/format.js'

/**
 * @typedef {import('../wire.d.ts').Change} Change
 * @typedef {{ key: string, when: string, what: string, change: string, why: string, who: string }} Row
 */

/**
 * @param {readonly Change[]} changes newest first
 * @returns {Row[]} newest first; changes by feedback that follow each other, of one group, are one row
 */
export function historyRows(changes) {
  /** @type {Change[][]} */
  const runs = []
  for (const change of changes) {
    const run = runs.at(-1)
    if (run?.[0] && change.kind === 'feedback' && subjectOf(run[0]) === subjectOf(change)) run.push(change)
    else runs.push([change])
  }
  return runs.map((run) => (run.length === 1 ? rowOf(/** @type {Change} */ (run[0])) : runRow(run)))
}

/**
 * @param {Change} change
 * @returns {Row}
 */
export function rowOf(change) {
  const { id, at, reason } = change
  return { key: id, when: time(at), what: kindOf(change), change: whatOf(change), why: reason, who: writerOf(change) }
}

/**
 * @param {Change[]} run newest first
 * @returns {Row}
 */
function runRow(run) {
  const [newest, oldest] = [/** @type {Change} */ (run[0]), /** @type {Change} */ (run.at(-1))]
  const writers = new Set(run.map(({ by }) => by))
  const reasons = new Set(run.map(({ reason }) => reason))
  const last = `last: ${kindOf(newest).replace('Feedback: ', '')}, ${whatOf(newest)}`
  return {
    key: `run ${oldest.id}`,
    when: `${time(oldest.at)} – ${time(newest.at)}`,
    what: `Feedback, ${run.length} changes`,
    change: [rangeText(run), last].filter(Boolean).join('; '),
    why: reasons.size === 1 ? newest.reason : `${newest.reason} (and ${plural(reasons.size - 1, 'other reason')})`,
    who: writers.size === 1 ? rowOf(newest).who : `${writers.size} workers`,
  }
}

/** @param {Change} change */
function subjectOf({ kind, change }) {
  const scope = /** @type {{ group?: string } | undefined} */ (change.scope)
  return JSON.stringify([kind, scope?.group])
}

/**
 * @param {readonly Change[]} run
 * @returns {string} between which values the rate, and the jobs at once, were set
 */
function rangeText(run) {
  return [range('rate', run, '/s'), range('concurrency', run, ' at once')].filter(Boolean).join(', ')
}

/**
 * @param {string} field
 * @param {readonly Change[]} run
 * @param {string} unit
 */
function range(field, run, unit) {
  const values = run.map(({ change }) => change[field]).filter((value) => typeof value === 'number')
  if (values.length < 2) return ''
  const [least, most] = [Math.min(...values), Math.max(...values)]
  return least === most ? `${field} ${number(least)}${unit}` : `${field} ${number(least)} to ${number(most)}${unit}`
}
