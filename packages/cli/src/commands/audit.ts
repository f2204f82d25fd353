import type { HistoryEntry, Inspector, QueueStatus } from 'sluice/inspect'
import {
  type Audit,
  type AuditedWindow,
  audit,
  changesUs,
  countText,
  formatDuration,
  type Gap,
  type GroupsAudit,
  keysText,
  type LimitAudit,
  plainText,
} from 'sluice/internal'
import { parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { existingStatus } from '../existing-queue.ts'

/** The number of history entries that a queue keeps. */
const HISTORY = 1000

export const addCommand: AddCommand = (program, run) => {
  program
    .command('audit')
    .description(
      'Checks the departures kept by shape.audit against the rate and limits. Exits with 1 if a bound was broken.',
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .option(
      '--last <n>',
      'only the last n departures (default: all that are kept)',
      wholeNumber(1, Number.MAX_SAFE_INTEGER),
    )
    .addHelpText(
      'after',
      `
Examples:
  $ sluice shape set emails --audit 10000 --reason 'proof for the provider'
  $ sluice audit emails --last 1000 --json | jq .worst
`,
    )
    .action(run(auditQueue))
}

async function auditQueue(cli: Cli, name: string, { last }: { readonly last?: number }): Promise<number> {
  const status = await existingStatus(cli, name)
  const inspector = cli.inspector()
  const [entries, history] = await Promise.all([inspector.audit(name), inspector.history(name, { count: HISTORY })])
  if (entries.length === 0) throw nothingKept(name, status)
  const limits = status.shape?.mode === 'enforce' ? (status.shape.limits ?? []) : []
  const found = audit(entries, {
    ...(last === undefined ? {} : { last }),
    limits,
    limitsSinceUs: changedSinceUs(history),
    changesUs: changesUs(history),
  })
  const gaps = await explained(inspector, name, found.gaps)
  cli.print({ queue: name, ...withDates(found), gaps }, () => auditText(name, found, gaps))
  return found.broken ? EXIT_CODES.failed : EXIT_CODES.done
}

function nothingKept(name: string, { shape }: QueueStatus): CommandError {
  const message =
    shape?.audit === undefined
      ? `queue "${name}" keeps no departures: declare shape.audit, or run sluice shape set ${name} --audit 10000 --reason …`
      : `queue "${name}" has kept no departure yet: only those released by a rate or limits are kept`
  return new CommandError(EXIT_CODES.failed, message)
}

/** When the limits or the mode last changed, µs: the rules of earlier departures are unknown. */
function changedSinceUs(history: readonly HistoryEntry[]): number {
  const times = history
    .filter(({ change }) => 'limits' in change || 'mode' in change)
    .flatMap(({ at, until }) => (until && until.getTime() < Date.now() ? [at, until] : [at]))
  // The history has ms, slots have µs.
  return Math.max(0, ...times.map((time) => (time.getTime() + 1) * 1000))
}

async function explained(inspector: Inspector, name: string, gaps: readonly Gap[]): Promise<ExplainedGap[]> {
  return Promise.all(
    gaps.map(async (gap) => {
      const job = await inspector.explain(name, gap.jobId)
      // For a job that was retried, only the last start is known.
      const known = job?.startedAt && Math.abs(job.startedAt.getTime() - gap.toUs / 1000) < 2
      return { ...gap, waited: known ? job.readyAt.getTime() * 1000 < gap.toUs - gap.openUs / 2 : undefined }
    }),
  )
}

/** For JSON: the fields in µs stay exact, and dates are added for readability. */
function withDates({ gaps: _, ...found }: Audit): object {
  const date = (us: number | undefined) => (us === undefined ? undefined : new Date(us / 1000))
  return { from: date(found.fromUs), to: date(found.toUs), ...found }
}

/** A gap, and whether the job at its end waited during it; undefined if that is no longer known. */
interface ExplainedGap extends Gap {
  readonly waited: boolean | undefined
}

function auditText(name: string, found: Audit, gaps: readonly ExplainedGap[]): string {
  const lines = [
    `${plainText(name)}: ${countText(found.departures, 'departure')}${spanText(found)}`,
    `rate: ${boundText(found.worst, found.stretches)}`,
    ...found.limits.map(limitText),
  ]
  if (found.groups) lines.push(groupsText(found.groups))
  lines.push(latenessText(found))
  const { unpaced, givenBack } = found
  if (unpaced > 0)
    lines.push(`${countText(unpaced, 'departure')} that no rate and no limit counted: mode shadow or off`)
  if (givenBack > 0)
    lines.push(`${countText(givenBack, 'departure')} given back before the start, and not counted above`)
  lines.push(...gapLines(gaps), found.broken ? 'BROKEN' : 'every bound was kept')
  return lines.join('\n')
}

function spanText({ fromUs, toUs }: Audit): string {
  if (fromUs === undefined || toUs === undefined) return ''
  return ` from ${timeText(fromUs)} to ${timeText(toUs)} (${formatDuration((toUs - fromUs) / 1000)})`
}

function boundText(worst: AuditedWindow | undefined, stretches: number): string {
  if (!worst) return 'none'
  const parted = stretches > 1 ? `; checked separately in ${stretches} parts` : ''
  return `${windowText(worst, worst.excessUs > 1)}${parted}`
}

function limitText({ name, algorithm, keys, values, worst, note, broken }: LimitAudit): string {
  const limit = `limit ${name} (${algorithm})`
  if (!worst) return `${limit}: ${note ?? 'nothing to check'}`
  const of = keys ? ` of ${plainText(keysText(keys))}` : ''
  const others = values !== undefined && values > 1 ? `, the worst of ${values}` : ''
  return `${limit}${of}${others}: ${windowText(worst, broken)}${note === undefined ? '' : ` (${note})`}`
}

function windowText({ fromUs, toUs, cost, allowed, excessUs }: AuditedWindow, broken: boolean): string {
  const window = `${number(cost)} of ${allowedText(allowed)} within ${formatDuration((toUs - fromUs) / 1000)}`
  if (!broken) return `kept; the fullest window has ${window}`
  const by = Number.isFinite(excessUs) ? `, ${formatDuration(excessUs / 1000)} too soon` : ''
  return `BROKEN: ${window}${by}, from ${timeText(fromUs)} on`
}

function groupsText({ groups, departures, worst, broken }: GroupsAudit): string {
  const of = `groups: ${countText(departures, 'departure')} of ${countText(groups, 'group')} with a rate of ${groups === 1 ? 'its' : 'their'} own`
  const ending = broken > 0 ? `; ${broken} broke ${broken === 1 ? 'its bound' : 'their bounds'}` : ''
  return `${of}${ending}; of group ${plainText(worst.group)}: ${windowText(worst, worst.excessUs > 1)}`
}

function latenessText({ lateness }: Audit): string {
  if (!lateness) return 'starts: not reported yet'
  const { starts, early, p50Us, p99Us, maxUs } = lateness
  const [p50, p99, max] = [p50Us, p99Us, maxUs].map((us) => formatDuration(us / 1000))
  const before = early > 0 ? `; BROKEN: ${early} before their slots` : ''
  return `starts: ${starts}, late by ${p50} (p50), ${p99} (p99), ${max} (max)${before}`
}

function gapLines(gaps: readonly ExplainedGap[]): string[] {
  const words = (waited: boolean | undefined) => {
    if (waited === undefined) return 'whether a job waited is no longer known'
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

function allowedText(units: number): string {
  return `${number(units)} unit${number(units) === '1' ? '' : 's'}`
}

function number(units: number): string {
  return String(Number(units.toFixed(3)))
}
