import { type Audit, audit } from '../../audit/audit.ts'
import { changesUs } from '../../audit/changes.ts'
import type { Gap } from '../../audit/gaps.ts'
import type { Inspector } from '../../inspect/inspector.ts'
import type { HistoryEntry, QueueStatus } from '../../inspect/queue-status.ts'
import { parseQueueName, wholeNumber } from '../arguments.ts'
import { auditText, type ExplainedGap } from '../audit-text.ts'
import { type AddCommand, type Cli, CommandError } from '../cli.ts'
import { existingStatus } from '../existing-queue.ts'
import { EXIT_CODES } from '../exit-codes.ts'

/** As many entries as a queue keeps. */
const HISTORY = 1000

export const addAuditCommand: AddCommand = (program, run) => {
  program
    .command('audit')
    .description(
      'Holds the last departures of a queue against the bounds of its rate and its limits. Ends with 1 if one was broken. ' +
        'The queue has to keep them: shape.audit.',
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .option(
      '--last <n>',
      'only so many departures (default: all that are kept)',
      wholeNumber(1, Number.MAX_SAFE_INTEGER),
    )
    .addHelpText(
      'after',
      `
Examples:
  $ sluice shape set emails --audit 10000 --reason 'to be able to show it'
  $ sluice audit emails
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
  const found = audit(entries, {
    ...(last === undefined ? {} : { last }),
    limits: status.shape?.mode === 'enforce' ? (status.shape.limits ?? []) : [],
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
      : `queue "${name}" has kept no departure yet: only those that a rate or limits let go are kept`
  return new CommandError(EXIT_CODES.failed, message)
}

/** Since when the limits and the mode are unchanged: the rules of earlier departures are not known. */
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
      // For a job that was retried, the first wait is not known.
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
