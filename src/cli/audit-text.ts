import type { Audit } from '../audit/audit.ts'
import type { AuditedWindow } from '../audit/bucket-window.ts'
import type { Gap } from '../audit/gaps.ts'
import { plainText } from '../plain-text.ts'
import { formatDuration } from './duration.ts'

/** A gap, and whether the job at its end waited in it: `undefined` where that is no longer known. */
export interface ExplainedGap extends Gap {
  readonly waited: boolean | undefined
}

export function auditText(name: string, found: Audit, gaps: readonly ExplainedGap[]): string {
  const lines = [
    `${plainText(name)}: ${found.departures} departures${spanText(found)}`,
    `rate: ${boundText(found.worst, found.stretches)}`,
  ]
  for (const { name: limit, algorithm, worst, note, broken } of found.limits) {
    const said = note === undefined ? '' : ` (${note})`
    lines.push(`limit ${limit} (${algorithm}): ${worst ? windowText(worst, broken) : 'nothing to check'}${said}`)
  }
  lines.push(latenessText(found))
  if (found.unpaced > 0) lines.push(`${found.unpaced} departures were not held by the rate: no rate, shadow or off`)
  if (found.givenBack > 0)
    lines.push(`${found.givenBack} departures were given back before they started, and are not counted`)
  lines.push(...gapLines(gaps), found.broken ? 'BROKEN' : 'every bound was kept')
  return lines.join('\n')
}

function spanText({ fromUs, toUs }: Audit): string {
  if (fromUs === undefined || toUs === undefined) return ''
  return ` from ${timeText(fromUs)} to ${timeText(toUs)} (${formatDuration((toUs - fromUs) / 1000)})`
}

function boundText(worst: AuditedWindow | undefined, stretches: number): string {
  if (!worst) return 'nothing to check'
  const parted = stretches > 1 ? `; ${stretches} parts were held against it one by one` : ''
  return `${windowText(worst, worst.excessUs > 1)}${parted}`
}

function windowText({ fromUs, toUs, cost, allowed, excessUs }: AuditedWindow, broken: boolean): string {
  const window = `${number(cost)} of ${number(allowed)} units within ${formatDuration((toUs - fromUs) / 1000)}`
  if (!broken) return `kept; the fullest window has ${window}`
  const by = Number.isFinite(excessUs) ? `, ${formatDuration(excessUs / 1000)} too soon` : ''
  return `BROKEN: ${window}${by}, from ${timeText(fromUs)} on`
}

function latenessText({ lateness }: Audit): string {
  if (!lateness) return 'starts: not told yet'
  const { starts, early, p50Us, p99Us, maxUs } = lateness
  const [p50, p99, max] = [p50Us, p99Us, maxUs].map((us) => formatDuration(us / 1000))
  const before = early > 0 ? `; BROKEN: ${early} before their slots` : ''
  return `starts: ${starts}, late by ${p50} (p50), ${p99} (p99), ${max} (max)${before}`
}

function gapLines(gaps: readonly ExplainedGap[]): string[] {
  const words = (waited: boolean | undefined) => {
    if (waited === undefined) return 'whether a job waited is not known any more'
    return waited ? 'the next job waited' : 'no job waited'
  }
  return gaps.map(
    ({ fromUs, openUs, waited, jobId }) =>
      `gap: ${formatDuration(openUs / 1000)} after ${timeText(fromUs)}, before job ${plainText(jobId)}: ${words(waited)}`,
  )
}

function timeText(us: number): string {
  return new Date(us / 1000).toISOString()
}

function number(units: number): string {
  return String(Number(units.toFixed(3)))
}
