import { h, setChildren, setText } from '../base/dom.js'
import { COLUMNS, FleetRow } from './fleet-row.js'
import { Seeds } from './fleet-seeds.js'
import { FleetSums } from './fleet-sums.js'
import { noQueues } from './no-queues.js'

/** @typedef {import('./fleet-row.js').SortKey} SortKey */

/** Every queue in one table. */
export class FleetView {
  /** @type {Map<string, FleetRow>} */
  #rows = new Map()
  #seeds = new Seeds()
  #sums = new FleetSums()
  #sort = { key: /** @type {SortKey} */ ('name'), down: false }
  #filter = h('input', { id: 'filter', type: 'search', placeholder: 'Name or state', oninput: () => this.#arrange() })
  #matches = h('span', { class: 'muted small' })
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
  )
  #help = noQueues()
  element = h('div', {}, h('h1', { class: 'hidden' }, 'Queues'), this.#list, this.#help)
  title = 'Queues'

  /** @param {import('../wire.d.ts').Fleet} fleet */
  onFleet({ queues }) {
    const names = new Set(queues.map(({ name }) => name))
    for (const name of this.#rows.keys()) if (!names.has(name)) this.#rows.delete(name)
    for (const queue of queues) {
      const row = this.#rows.get(queue.name)
      if (row) row.update(queue)
      else this.#add(new FleetRow(queue))
    }
    this.#list.hidden = queues.length === 0
    this.#help.hidden = queues.length > 0
    this.#sums.show([...this.#rows.values()])
    this.#arrange()
  }

  onQueue() {}

  close() {
    this.#seeds.close()
  }

  /** @param {FleetRow} row */
  #add(row) {
    this.#rows.set(row.queue.name, row)
    this.#seeds.watch(row)
  }

  #arrange() {
    const words = this.#filter.value.trim().toLowerCase()
    const all = [...this.#rows.values()]
    const shown = all.filter((row) => row.matches(words)).sort((one, other) => this.#compare(one, other))
    setChildren(
      this.#body,
      shown.map(({ element }) => element),
    )
    setText(this.#matches, words === '' ? '' : `${shown.length} of ${all.length}`)
  }

  /**
   * @param {FleetRow} one
   * @param {FleetRow} other
   */
  #compare(one, other) {
    const { key, down } = this.#sort
    const [a, b] = [one.sortValue(key), other.sortValue(key)]
    const order = a < b ? -1 : a > b ? 1 : one.queue.name < other.queue.name ? -1 : 1
    return down ? -order : order
  }

  /** @param {(typeof COLUMNS)[number]} column */
  #head({ key, label }) {
    const props = { role: 'columnheader', scope: 'col', class: key === undefined || key === 'name' ? '' : `c-${key}` }
    if (key === undefined) return h('th', props, label)
    const sort = key === 'name' ? 'ascending' : 'none'
    return h(
      'th',
      { ...props, 'aria-sort': sort },
      h('button', { type: 'button', onclick: () => this.#sortBy(key) }, label),
    )
  }

  /** For narrow screens, which show no heads of columns. */
  #sorter() {
    const options = COLUMNS.flatMap(({ key, label }) => (key === undefined ? [] : [h('option', { value: key }, label)]))
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
    this.#arrange()
  }
}
