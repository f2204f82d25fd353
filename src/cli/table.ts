import Table from 'cli-table3'

const BESIDE = ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right']
const LINES = [...BESIDE, 'left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid']
const CHARS = { ...Object.fromEntries(LINES.map((name) => [name, ''])), middle: '  ' }

/** A table without lines: columns as wide as their cells, two spaces apart. */
export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const style = { head: [], border: [], 'padding-left': 0, 'padding-right': 0, compact: true }
  const table = new Table({ head: [...head], chars: CHARS, style })
  table.push(...rows.map((row) => [...row]))
  return table
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n')
}
