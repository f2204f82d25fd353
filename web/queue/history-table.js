import { kindOf, whatOf } from '../base/change-text.js'
import { time } from '../base/format.js'
import { Table } from '../base/table.js'

/** @typedef {import('../wire.d.ts').Change} Change */

/** The history of changes, with author and reason; newest first. */
export function historyTable() {
  return new Table('History', {
    columns: /** @type {import('../base/table.js').Column<Change>[]} */ ([
      { label: 'Time', text: ({ at }) => time(at) },
      { label: 'What', text: kindOf },
      { label: 'Change', text: whatOf, isWide: true },
      { label: 'Why', text: ({ reason }) => reason, isWide: true },
      { label: 'Who', text: ({ by }) => by },
    ]),
    key: ({ id }) => id,
    empty: 'Nothing has been changed yet.',
  })
}
