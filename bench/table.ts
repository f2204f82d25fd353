import type { Figure, Row } from './figure.ts'

const HEADINGS = ['', 'asked', 'reached', 'ok', "BullMQ's own"]

function cellsOf(row: Row): string[] {
  if (row.cells) return [row.setup, ...row.cells]
  const ok = row.ok === true ? 'yes' : row.ok === false ? 'NO' : (row.ok ?? '')
  return [row.setup, row.asked ?? '', row.reached, ok, row.beside ?? '']
}

export function table(rows: readonly Row[], { headings = HEADINGS }: Pick<Figure, 'headings'> = {}): string {
  const lines = [headings, ...rows.map(cellsOf)]
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => (line[column] as string).length)))
  const format = (line: readonly string[]) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] as number))
      .join('  ')
      .trimEnd()
  const [first, ...body] = lines.map(format) as [string, ...string[]]
  return [first, '─'.repeat(Math.max(...body.map((line) => line.length))), ...body].join('\n')
}
