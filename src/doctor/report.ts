import type { Colors } from 'picocolors/types.js'
import { countText } from '../plain-text.ts'
import type { Finding, Level } from './finding.ts'

const SIGNS: Readonly<Record<Level, string>> = { ok: '✓', warning: '!', error: '✗', skipped: '–' }

export function countLevels(findings: readonly Finding[]): Record<Level, number> {
  const counts: Record<Level, number> = { ok: 0, warning: 0, error: 0, skipped: 0 }
  for (const { level } of findings) counts[level] += 1
  return counts
}

/**
 * The findings for display: those of the server and this process first, then queue by queue; remedies follow their
 * findings.
 * @param plain makes untrusted text safe for a terminal
 */
export function reportText(findings: readonly Finding[], colors: Colors, plain: (text: string) => string): string {
  const queues = [...new Set(findings.flatMap(({ queue }) => (queue === undefined ? [] : [queue])))]
  const groups = [undefined, ...queues].flatMap((queue) => {
    const own = findings.filter((finding) => finding.queue === queue)
    if (own.length === 0) return []
    const title = colors.bold(queue === undefined ? 'Redis and this process' : `queue ${plain(queue)}`)
    return [[title, ...own.flatMap((finding) => linesOf(finding, colors, plain))].join('\n')]
  })
  return [...groups, summary(countLevels(findings), colors)].join('\n\n')
}

function linesOf(
  { check, level, message, remedy }: Finding,
  colors: Colors,
  plain: (text: string) => string,
): string[] {
  const paint = painterOf(level, colors)
  const line = `  ${paint(SIGNS[level])} ${check.padEnd(15)} ${plain(message)}`
  return remedy === '' ? [line] : [line, `    ${' '.repeat(15)} ${colors.dim(`→ ${plain(remedy)}`)}`]
}

function painterOf(level: Level, colors: Colors): (text: string) => string {
  const painters = { ok: colors.green, warning: colors.yellow, error: colors.red, skipped: colors.dim }
  return painters[level]
}

function summary(counts: Record<Level, number>, colors: Colors): string {
  const errors = countText(counts.error, 'error')
  const warnings = countText(counts.warning, 'warning')
  return [
    counts.error > 0 ? colors.red(errors) : errors,
    counts.warning > 0 ? colors.yellow(warnings) : warnings,
    `${counts.ok} ok`,
    `${counts.skipped} skipped`,
  ].join(', ')
}
