import { countText, formatDuration, plainText } from 'sluice/internal'
import type { Summary } from './simulate/summary.ts'

export interface SimulatedShape {
  readonly label: string
  readonly summary: Summary
}

const HEAD = [
  'shape',
  'accepted',
  'refused',
  'p50',
  'p95',
  'p99',
  'max wait',
  'longest queue',
  'utilisation',
  'finished after',
]

const LONGEST_LABEL = 40

/** Numbers shapes that would make the table too wide, as JSON does. @returns them, and a line for each number */
export function withShortLabels<T extends SimulatedShape>(shapes: readonly T[]): { shapes: T[]; legend: string[] } {
  const isLong = ({ label }: T) => label.length > LONGEST_LABEL
  const numbered = (at: number) => `shape ${at + 1}`
  return {
    shapes: shapes.map((shape, at) => (isLong(shape) ? { ...shape, label: numbered(at) } : shape)),
    legend: shapes.flatMap((shape, at) => (isLong(shape) ? [`${numbered(at)}: ${shape.label}`] : [])),
  }
}

/** One row per shape. */
export function simulationTable(
  shapes: readonly SimulatedShape[],
  table: (head: readonly string[], rows: readonly (readonly string[])[]) => string,
): string {
  const hasGroups = shapes.some(({ summary }) => summary.groups)
  return table(
    hasGroups ? [...HEAD, 'fairness'] : HEAD,
    shapes.map(({ label, summary }) => [
      label,
      String(summary.accepted),
      `${summary.refused} (${percent(summary.refusedShare)})`,
      ...(['p50', 'p95', 'p99', 'max'] as const).map((one) => formatDuration(summary.waitMs?.[one])),
      String(summary.longestQueue),
      percent(summary.utilisation ?? summary.placeUtilisation),
      formatDuration(summary.finishedAfterMs),
      ...(hasGroups ? [summary.groups?.fairness.toFixed(3) ?? '—'] : []),
    ]),
  )
}

/**
 * What the table does not show: why jobs were refused, and where concurrency rather than the rate decided the start
 * times.
 */
export function simulationNotes({ label, summary }: SimulatedShape): string[] {
  const { refusedBy, dropped, groups, placeBound, started, placeUtilisation, utilisation } = summary
  const notes: string[] = []
  const refused = [
    [refusedBy.full, 'found no place'],
    [refusedBy.late, 'could not start in time'],
    [refusedBy.tooDear, 'cost more than is ever allowed'],
  ] as const
  for (const [count, why] of refused) if (count > 0) notes.push(`${label}: ${count} ${why}`)
  if (groups?.longestWait) {
    const { group, ms } = groups.longestWait
    const median = formatDuration(groups.medianLongestWaitMs)
    notes.push(
      `${label}: of ${countText(groups.count, 'group')}, ${plainText(group)} waited longest, up to ${formatDuration(ms)}; the median group up to ${median}`,
    )
  }
  if (dropped > 0) notes.push(`${label}: ${dropped} dropped to make room for later ones`)
  if (placeBound > 0) {
    const running = placeUtilisation === undefined ? '' : `; the places are ${percent(placeUtilisation)} in use`
    notes.push(
      `${label}: concurrency binds: ${percent(placeBound / started)} of the starts waited for a place${running}`,
    )
  } else if (placeUtilisation !== undefined && utilisation !== undefined) {
    notes.push(`${label}: concurrency does not bind: the places are ${percent(placeUtilisation)} in use`)
  }
  return notes
}

/** The text after a shape in the legend of a plot. */
export function simulationLegend({ refused, refusedShare, waitMs, utilisation }: Summary): string {
  const parts = [waitMs ? `p95 ${formatDuration(waitMs.p95)}, max ${formatDuration(waitMs.max)}` : 'nothing started']
  parts.push(refused > 0 ? `${percent(refusedShare)} refused` : 'none refused')
  if (utilisation !== undefined) parts.push(`${percent(utilisation)} of the rate`)
  return parts.join(' · ')
}

function percent(part: number | undefined): string {
  if (part === undefined) return '—'
  const digits = part > 0 && part < 0.001 ? 3 : 1
  return `${Number((part * 100).toFixed(digits))}%`
}
