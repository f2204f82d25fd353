import { h, setChildren, setText } from '../base/dom.js'
import { count } from '../base/format.js'
import { FleetRow } from './fleet-row.js'
import { Seeds } from './fleet-seeds.js'
import { FleetSums } from './fleet-sums.js'
import { noQueues } from './no-queues.js'
import { COLUMNS } from './row-cells.js'

/** @typedef {import('./fleet-row.js').SortKey} SortKey */

/** Queues per page; the server uses the same number. */
const PAGE = 100
/** Pause in typing after which the filter is applied. */
const TYPING_MS = 300
/** No row is lower. px */
const ROW_HEIGHT = 50
/** While the page loads, so many rows are added at a time, and it can be used meanwhile. */
const PIECE = 25

/** Every queue in one table; very many are shown in pages. */
export class FleetView {
  /** @type {Map<string, FleetRow>} */
  #rows = new Map()
  #seeds = new Seeds()
  #sums = new FleetSums(() => this.#filtered(0))
  #sort = { key: /** @type {SortKey} */ ('look'), down: true }
  /** Whether the queues are so many that the server sorts and filters them, and sends one page. */
  #isPart = false
  #start = 0
  #onTerms
  /** In display order. @type {readonly FleetRow[]} */
  #shown = []
  /** How many of them there may be by now. */
  #most
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #adding
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing
  #filter = h('input', { id: 'filter', type: 'search', placeholder: 'Name or state', oninput: () => this.#filtered() })
  #matches = h('span', { class: 'muted small' })
  #before = h('button', { type: 'button', onclick: () => this.#turnTo(this.#start - PAGE) }, 'Previous')
  #after = h('button', { type: 'button', onclick: () => this.#turnTo(this.#start + PAGE) }, 'Next')
  #place = h('span', { class: 'muted' })
  #pager = h(
    'nav',
    { class: 'toolbar', 'aria-label': 'Pages of queues', hidden: true },
    this.#before,
    this.#place,
    this.#after,
  )
  #body = h('tbody', { role: 'rowgroup' })
  #heads = COLUMNS.map((column) => this.#head(column))
  #list = h(
    'div',
    {},
    this.#sums.element,
    h(
      'div',
      { class: 'toolbar' },
      h('label', { for: 'filter' }, 'Filter'),
      this.#filter,
      this.#matches,
      this.#sorter(),
    ),
    h(
      'table',
      { class: 'fleet card', role: 'table', 'aria-label': 'Queues' },
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...this.#heads)),
      this.#body,
    ),
    this.#pager,
  )
  #help = noQueues()
  element = h('div', {}, h('h1', { class: 'hidden' }, 'Queues'), this.#list, this.#help)
  title = 'Queues'

  /**
   * @param {() => void} onTerms called when another page is needed
   * @param {boolean} isFirst whether the page is being loaded
   */
  constructor(onTerms, isFirst) {
    this.#onTerms = onTerms
    // At first those on the first screen. Later all at once, so that a browser that goes back finds the place.
    this.#most = isFirst ? onScreen() : Number.POSITIVE_INFINITY
  }

  /** The requested page of very many queues. @returns {import('../wire.d.ts').PageTerms} */
  get terms() {
    const { key: sort, down } = this.#sort
    return { start: this.#start, sort, down, filter: this.#filter.value.trim(), marked: this.#sums.marked }
  }

  /** @param {import('../wire.d.ts').Fleet} fleet */
  onFleet({ queues, total, matching, start, sums }) {
    const names = new Set(queues.map(({ name }) => name))
    for (const name of this.#rows.keys()) if (!names.has(name)) this.#rows.delete(name)
    for (const queue of queues) {
      const row = this.#rows.get(queue.name)
      if (row) row.update(queue)
      else this.#rows.set(queue.name, new FleetRow(queue))
    }
    this.#isPart = total > queues.length
    this.#list.hidden = total === 0
    this.#help.hidden = total > 0
    this.#sums.show([...this.#rows.values()], this.#isPart ? { total, sums } : undefined)
    this.#pager.hidden = !this.#isPart
    this.#before.disabled = start === 0
    this.#after.disabled = start + queues.length >= matching
    const last = start + queues.length
    setText(this.#place, queues.length === 0 ? 'none' : `${count(start + 1)} to ${count(last)} of ${count(matching)}`)
    if (this.#isPart) this.#showPart(queues, matching, total)
    else this.#arrange()
  }

  onQueue() {}

  close() {
    clearTimeout(this.#typing)
    clearTimeout(this.#adding)
    this.#seeds.close()
  }

  /**
   * @param {readonly import('../wire.d.ts').Queue[]} queues in display order
   * @param {number} matching
   * @param {number} total
   */
  #showPart(queues, matching, total) {
    this.#showRows(queues.flatMap(({ name }) => this.#rows.get(name) ?? []))
    setText(this.#matches, matching === total ? '' : `${count(matching)} of ${count(total)}`)
  }

  /** @param {number} [waitMs] */
  #filtered(waitMs = TYPING_MS) {
    if (!this.#isPart) return this.#arrange()
    clearTimeout(this.#typing)
    this.#typing = setTimeout(() => this.#turnTo(0), waitMs)
  }

  /** @param {number} start */
  #turnTo(start) {
    this.#start = Math.max(0, start)
    this.#onTerms()
  }

  #arrange() {
    const words = this.#filter.value.trim().toLowerCase()
    const all = [...this.#rows.values()]
    const { marked } = this.#sums
    const { key, down } = this.#sort
    const shown = all
      .filter((row) => row.matches(words) && (!marked || row.sortValue('look') !== 0))
      .map((row) => ({ row, value: row.sortValue(key) }))
      .sort((one, other) => compare(one, other, down))
      .map(({ row }) => row)
    this.#showRows(shown)
    setText(this.#matches, shown.length === all.length ? '' : `${shown.length} of ${all.length}`)
  }

  /** @param {readonly FleetRow[]} rows in display order */
  #showRows(rows) {
    this.#shown = rows
    // Those on the first screen at once, so that it is never seen without its numbers.
    for (const row of rows.slice(0, onScreen())) row.fill()
    const present = rows.slice(0, this.#most)
    for (const row of present) this.#seeds.watch(row)
    setChildren(
      this.#body,
      present.map(({ element }) => element),
    )
    if (this.#most < rows.length) this.#adding ??= setTimeout(() => this.#addPiece())
  }

  #addPiece() {
    this.#adding = undefined
    this.#most += PIECE
    this.#showRows(this.#shown)
  }

  /** @param {(typeof COLUMNS)[number]} column */
  #head({ key, label }) {
    const props = { role: 'columnheader', scope: 'col', class: key === undefined || key === 'name' ? '' : `c-${key}` }
    if (key === undefined) return h('th', props, label)
    const sort = key === 'look' ? 'descending' : 'none'
    return h(
      'th',
      { ...props, 'aria-sort': sort },
      h('button', { type: 'button', onclick: () => this.#sortBy(key) }, label),
    )
  }

  /** For narrow screens, which show no column headers. */
  #sorter() {
    const options = COLUMNS.flatMap(({ key, label }) =>
      key === undefined ? [] : [h('option', { value: key, selected: key === 'look' }, label)],
    )
    const select = h(
      'select',
      { id: 'sort', onchange: () => this.#sortBy(/** @type {SortKey} */ (select.value)) },
      ...options,
    )
    return h('span', { class: 'sorter' }, h('label', { for: 'sort' }, 'Sort by'), select)
  }

  /** @param {SortKey} key */
  #sortBy(key) {
    const down = this.#sort.key === key ? !this.#sort.down : key !== 'name'
    this.#sort = { key, down }
    for (const [i, head] of this.#heads.entries()) {
      const column = COLUMNS[i]?.key
      if (column !== undefined)
        head.setAttribute('aria-sort', column !== key ? 'none' : down ? 'descending' : 'ascending')
    }
    if (this.#isPart) this.#turnTo(0)
    else this.#arrange()
  }
}

/** The most rows that a screen has room for. */
function onScreen() {
  return Math.ceil(innerHeight / ROW_HEIGHT)
}

/** @typedef {{ row: FleetRow, value: number | string }} Sorted */

/**
 * @param {Sorted} one
 * @param {Sorted} other
 * @param {boolean} down
 */
function compare({ row, value }, other, down) {
  const sign = down ? -1 : 1
  if (value !== other.value) return value < other.value ? -sign : sign
  return row.queue.name < other.row.queue.name ? -1 : 1
}
