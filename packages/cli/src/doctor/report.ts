import type { Colors } from 'picocolors/types.js'
import { countText } from 'sluice/internal'
import type { Finding, Level } from './check.ts'

const SIGNS: Readonly<Record<Level, string>> = { ok: '✓', note: '·', warning: '!', error: '✗', skipped: '–' }

export function countLevels(findings: readonly Finding[]): Record<Level, number> {
  const counts: Record<Level, number> = { ok: 0, note: 0, warning: 0, error: 0, skipped: 0 }
  for (const { level } of findings) counts[level] += 1
  return counts
}

/** Queues that are well are named together in a report, at most this many. */
const NAMED = 20

export interface ReportOptions {
  readonly colors: Colors
  /** Makes untrusted text safe for a terminal. */
  readonly plain: (text: string) => string
  /** Whether each queue is shown in full; otherwise those that are well are only named. */
  readonly isFull: boolean
}

/**
 * The findings for display: those of the server and this process first, then queue by queue; remedies follow their
 * findings.
 */
export function reportText(findings: readonly Finding[], options: ReportOptions): string {
  const { colors, plain, isFull } = options
  const byQueue = new Map<string | undefined, Finding[]>([[undefined, []]])
  for (const finding of findings) byQueue.set(finding.queue, [...(byQueue.get(finding.queue) ?? []), finding])
  const isNamed = (queue: string | undefined, own: readonly Finding[]) => queue !== undefined && !isFull && isWell(own)
  const groups = [...byQueue].flatMap(([queue, own]) => {
    if (own.length === 0 || isNamed(queue, own)) return []
    const title = colors.bold(queue === undefined ? 'Redis and this process' : `queue ${plain(queue)}`)
    return [[title, ...own.flatMap((finding) => linesOf(finding, options))].join('\n')]
  })
  const well = [...byQueue].flatMap(([queue, own]) =>
    queue !== undefined && isNamed(queue, own) ? [plain(queue)] : [],
  )
  return [
    ...groups,
    ...(well.length === 0 ? [] : [wellText(well, colors)]),
    summary(countLevels(findings), colors),
  ].join('\n\n')
}

function isWell(findings: readonly Finding[]): boolean {
  return findings.every(({ level }) => level === 'ok' || level === 'skipped')
}

function wellText(names: readonly string[], colors: Colors): string {
  const rest = names.length > NAMED ? `, and ${names.length - NAMED} more` : ''
  const list = names.slice(0, NAMED).join(', ') + rest
  return `${colors.green(SIGNS.ok)} ${countText(names.length, 'queue')} without findings: ${list}`
}

function linesOf({ check, level, message, remedy }: Finding, { colors, plain }: ReportOptions): string[] {
  const paint = painterOf(level, colors)
  const line = `  ${paint(SIGNS[level])} ${check.padEnd(15)} ${plain(message)}`
  return remedy === '' ? [line] : [line, `    ${' '.repeat(15)} ${colors.dim(`→ ${plain(remedy)}`)}`]
}

function painterOf(level: Level, colors: Colors): (text: string) => string {
  const painters = {
    ok: colors.green,
    note: colors.cyan,
    warning: colors.yellow,
    error: colors.red,
    skipped: colors.dim,
  }
  return painters[level]
}

function summary(counts: Record<Level, number>, colors: Colors): string {
  const errors = countText(counts.error, 'error')
  const warnings = countText(counts.warning, 'warning')
  return [
    counts.error > 0 ? colors.red(errors) : errors,
    counts.warning > 0 ? colors.yellow(warnings) : warnings,
    countText(counts.note, 'note'),
    `${counts.ok} ok`,
    `${counts.skipped} skipped`,
  ].join(', ')
}
