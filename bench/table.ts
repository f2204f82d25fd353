import type { Row } from './figure.ts'

const HEADINGS = ['', 'asked', 'reached', 'ok', "BullMQ's own"] as const

function cells(row: Row): string[] {
  const ok = row.ok === undefined ? '' : row.ok ? 'yes' : 'NO'
  return [row.setup, row.asked ?? '', row.reached, ok, row.bullmq ?? '']
}

/** The rows of one figure, aligned. */
export function table(rows: readonly Row[]): string {
  const lines = [[...HEADINGS], ...rows.map(cells)]
  const widths = HEADINGS.map((_, column) => Math.max(...lines.map((line) => (line[column] as string).length)))
  const format = (line: readonly string[]) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] as number))
      .join('  ')
      .trimEnd()
  const [headings, ...body] = lines.map(format) as [string, ...string[]]
  return [headings, '─'.repeat(Math.max(...body.map((line) => line.length))), ...body].join('\n')
}
