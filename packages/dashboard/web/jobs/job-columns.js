import { h } from '../base/dom.js'
import { count, duration, NONE, number, time } from '../base/format.js'

/**
 * @typedef {import('../wire.d.ts').Job} Job
 * @typedef {import('../wire.d.ts').Letter} Letter
 * @typedef {import('../base/table.js').Column<Job>} JobColumn
 */

/** The listed states of jobs, each with its columns. */
export const JOB_STATES = /** @type {const} */ ([
  { state: 'waiting', label: 'Waiting', columns: ['id', 'name', 'added', 'age', 'cost', 'attempts'] },
  {
    state: 'prioritized',
    label: 'Prioritized',
    columns: ['id', 'name', 'group', 'priority', 'added', 'age', 'cost', 'attempts'],
  },
  { state: 'delayed', label: 'Delayed', columns: ['id', 'name', 'added', 'due', 'cost', 'attempts'] },
  { state: 'active', label: 'Active', columns: ['id', 'name', 'started', 'runs', 'worker', 'attempts'] },
  { state: 'waiting-children', label: 'Waiting for children', columns: ['id', 'name', 'added', 'age', 'attempts'] },
  { state: 'failed', label: 'Failed', columns: ['id', 'reason', 'name', 'ended', 'attempts'] },
  { state: 'completed', label: 'Completed', columns: ['id', 'name', 'added', 'started', 'ended', 'attempts'] },
])

const MOST_DATA = 500

/** @type {import('../base/table.js').Column<{ data?: unknown }>} */
const DATA = { label: 'Data', isWide: true, text: ({ data }) => (JSON.stringify(data) ?? '').slice(0, MOST_DATA) }

/** @typedef {(typeof JOB_STATES)[number]['columns'][number]} ColumnName */

/** @type {Record<Exclude<ColumnName, 'id'>, JobColumn>} */
const COLUMNS = {
  name: { label: 'Name', text: ({ name }) => name },
  group: { label: 'Group', text: ({ group = NONE }) => group },
  priority: { label: 'Priority', isNumber: true, text: ({ priority }) => count(priority) },
  added: { label: 'Added', text: ({ addedAt }) => time(addedAt) },
  age: { label: 'Age', isNumber: true, text: ({ addedAt }) => since(addedAt) },
  due: { label: 'Due', text: ({ addedAt, delayMs }) => time(Date.parse(addedAt) + delayMs) },
  started: { label: 'Started', text: ({ startedAt }) => time(startedAt) },
  runs: { label: 'Runs for', isNumber: true, text: ({ startedAt }) => since(startedAt) },
  worker: { label: 'Worker', isWide: true, text: ({ worker = NONE }) => worker },
  ended: { label: 'Ended', text: ({ finishedAt }) => time(finishedAt) },
  reason: { label: 'Reason', isWide: true, text: ({ failedReason = '' }) => failedReason },
  cost: { label: 'Cost', isNumber: true, text: ({ cost }) => number(cost) },
  attempts: { label: 'Attempts', isNumber: true, text: ({ attemptsStarted }) => count(attemptsStarted) },
}

/**
 * @typedef {{ showData: boolean, mayChange: boolean, explain: (id: string) => void }} RowTerms whether job data is
 * included, whether jobs can be changed, and what opens when a job is selected
 */

/**
 * @param {readonly ColumnName[]} names
 * @param {RowTerms} terms
 * @returns {JobColumn[]}
 */
export function jobColumns(names, { showData, explain }) {
  const columns = names.map((name) => (name === 'id' ? idColumn(explain) : COLUMNS[name]))
  return showData ? [...columns, DATA] : columns
}

/**
 * @param {(id: string) => void} explain
 * @returns {import('../base/table.js').Column<{ id: string }>}
 */
function idColumn(explain) {
  return {
    label: 'Job',
    text: ({ id }) => id,
    element: ({ id }) =>
      h('button', { type: 'button', class: 'link', title: 'Explain', onclick: () => explain(id) }, id),
  }
}

/**
 * @param {RowTerms} terms
 * @param {{ redrive: (letter: Letter) => void, drop: (letter: Letter) => void }} actions
 * @returns {import('../base/table.js').Column<Letter>[]}
 */
export function letterColumns({ showData, mayChange, explain }, actions) {
  return [
    idColumn(explain),
    { label: 'Reason', isWide: true, text: ({ failedReason }) => failedReason },
    { label: 'Name', text: ({ name }) => name },
    { label: 'Failed', text: ({ failedAt }) => time(failedAt) },
    { label: 'Attempts', isNumber: true, text: ({ attemptsMade }) => count(attemptsMade) },
    { label: 'Redriven', isNumber: true, text: ({ redriven }) => count(redriven) },
    ...(showData ? [DATA] : []),
    ...(mayChange ? [letterActions(actions)] : []),
  ]
}

/**
 * @param {{ redrive: (letter: Letter) => void, drop: (letter: Letter) => void }} actions
 * @returns {import('../base/table.js').Column<Letter>}
 */
function letterActions({ redrive, drop }) {
  /** @param {Letter} letter */
  const element = (letter) => {
    const button = (/** @type {string} */ label, /** @type {(letter: Letter) => void} */ act) => {
      const props = { type: 'button', class: 'quiet small', 'aria-label': `${label} job ${letter.id}` }
      return h('button', { ...props, onclick: () => act(letter) }, label)
    }
    return h('span', { class: 'row-actions' }, button('Redrive', redrive), button('Drop', drop))
  }
  return { label: 'Change', text: () => '', element }
}

/** @param {string | undefined} at by this machine's clock, which may be some seconds off */
function since(at) {
  return at === undefined ? '–' : duration(Math.max(0, Date.now() - Date.parse(at)))
}
