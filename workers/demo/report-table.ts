import { maxLatenessMs } from './limits.ts'
import type { QueueReport } from './report.ts'

/** A column of the report, with its heading. */
export interface ReportColumn {
  heading: readonly string[]
  report: QueueReport
}

const milliseconds = (us: number | undefined): string => (us === undefined ? '–' : `${(us / 1000).toFixed(1)} ms`)
const number = (value: number | undefined): string => (value === undefined ? '–' : String(value))
const perSecond = (rate: number | undefined): string => {
  if (rate === undefined) return '–'
  return rate >= 1 ? `${rate.toFixed(2)}/s` : `${(rate * 60).toFixed(2)}/min`
}

type Row = readonly [label: string, cell: (report: QueueReport) => string]

const rows: readonly Row[] = [
  ['lines offered', (r) => number(r.lines)],
  ['accepted', (r) => number(r.accepted)],
  ['attempts refused (each was repeated)', (r) => number(r.refused)],
  ['departures', (r) => number(r.departures)],
  ['retried', (r) => number(r.retried)],
  ['delivered', (r) => number(r.delivered)],
  ['lost', (r) => number(r.lost)],
  ['twice', (r) => number(r.twice)],
  ['rate configured', (r) => perSecond(r.ratePerSecond)],
  ['rate achieved', (r) => perSecond(r.achievedPerSecond)],
  ['jobs above the bound, worst window of departures', (r) => number(r.excessAtDeparture)],
  ['most starts in any 100 ms', (r) => number(r.mostStartsIn100Ms)],
  ['gaps between starts, p50', (r) => milliseconds(r.gapP50Us)],
  ['gaps between starts, p99', (r) => milliseconds(r.gapP99Us)],
  ['lateness of starts, p50', (r) => milliseconds(r.latenessP50Us)],
  ['lateness of starts, p99', (r) => milliseconds(r.latenessP99Us)],
  ['lateness of starts, worst', (r) => milliseconds(r.latenessMaxUs)],
  ['  maxLatenessMs allows', (r) => milliseconds(r.latenessMaxUs === undefined ? undefined : maxLatenessMs * 1000)],
  ['J, spread of the time from departure to arrival', (r) => milliseconds(r.jitterUs)],
  ['jobs above b + (T + J)/I, worst window of arrivals', (r) => number(r.excessAtArrival)],
  ['most arrivals in any second', (r) => number(r.mostArrivalsPerSecond)],
  ['  b + (1 s + J)/I allows', (r) => number(r.allowedArrivalsPerSecond)],
]

/** The report as a table: a row per figure, a column per queue. */
export function reportTable(columns: readonly ReportColumn[]): string {
  const depth = Math.max(...columns.map(({ heading }) => heading.length))
  const headings = Array.from({ length: depth }, (_, line) => [
    '',
    ...columns.map(({ heading }) => heading[line] ?? ''),
  ])
  const body = rows.map(([label, cell]) => [label, ...columns.map(({ report }) => cell(report))])
  const widths = columns.map((_, index) => Math.max(...[...headings, ...body].map((row) => row[index + 1]!.length)))
  const labelWidth = Math.max(...rows.map(([label]) => label.length))
  const line = ([label = '', ...cells]: readonly string[]): string =>
    [label.padEnd(labelWidth), ...cells.map((cell, index) => cell.padStart(widths[index]!))].join('  ').trimEnd()
  const rule = '─'.repeat(labelWidth + widths.reduce((sum, width) => sum + width + 2, 0))
  return [...headings.map(line), rule, ...body.map(line)].join('\n')
}

/** The letters in the table. */
export const legend = `The bound is b + T/I departures in any window of length T; b = burst (1 job),
I = time between departures at the configured rate. J = the longest minus the
shortest time from departure to arrival in this run; it applies to arrivals.`
