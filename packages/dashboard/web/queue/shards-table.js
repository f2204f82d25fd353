import { count, NONE, rate } from '../base/format.js'
import { CAUSES } from '../base/queue-text.js'
import { Table } from '../base/table.js'

/** @typedef {import('../wire.d.ts').Shard} Shard */

/** @param {Shard} shard */
function heldBy({ paused, hold }) {
  const found = paused ? 'pause' : hold?.cause
  return CAUSES.find(({ cause }) => cause === found)?.label ?? NONE
}

/** What each shard of a sharded queue has of the whole, and what it holds. */
export function shardsTable() {
  return new Table('Shards', {
    columns: /** @type {import('../base/table.js').Column<Shard>[]} */ ([
      { label: 'Shard', text: ({ shard }) => String(shard) },
      { label: 'Rate', isNumber: true, text: (shard) => (shard.rate === undefined ? NONE : rate(shard.rate)) },
      {
        label: 'Depth',
        isNumber: true,
        text: ({ depth, capacity }) =>
          capacity === undefined ? count(depth) : `${count(depth)} of ${count(capacity)}`,
      },
      { label: 'Waiting', isNumber: true, text: ({ waiting }) => count(waiting) },
      { label: 'Active', isNumber: true, text: ({ active }) => count(active) },
      { label: 'Held by', text: heldBy },
    ]),
    key: ({ shard }) => String(shard),
    empty: 'No shard has a shape yet.',
  })
}
