import type { Explanation } from 'sluice/inspect'
import { concurrencyText, countText, formatDuration, HOLD_CAUSES, keysText, plainText } from 'sluice/internal'
import { parseNonEmpty, parseQueueName } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { existingStatus } from '../existing-queue.ts'
import { holderText, holdText, numberText } from '../queue-text.ts'

/** Of the jobs that hold the places of a group, at most so many are named. */
const HOLDERS = 3

export const addCommand: AddCommand = (program, run) => {
  program
    .command('explain')
    .description(
      'Shows why a job has not started, what is ahead of it, when it will start, and what it has waited for.',
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('<job>', 'the id of the job', parseNonEmpty)
    .addHelpText(
      'after',
      `
Example:
  $ sluice explain emails 4711 --json | jq .startsAt
`,
    )
    .action(run(explain))
}

async function explain(cli: Cli, queue: string, jobId: string): Promise<void> {
  const found = await cli.inspector().explain(queue, jobId)
  if (!found) {
    await existingStatus(cli, queue)
    throw new CommandError(EXIT_CODES.notFound, `no job "${plainText(jobId)}" in queue "${queue}"`)
  }
  cli.print(found, () => explanationText(cli, found))
}

function explanationText(cli: Cli, found: Explanation): string {
  const title = `${cli.colors.bold(plainText(found.id))} ${plainText(found.name)} in ${plainText(found.queue)}`
  const parts = [title, cli.table([], rowsOf(found))]
  if (found.waitedMs > 0) parts.push('', cli.table(['waited for', 'ms', 'share'], partRows(found)))
  if (found.assumptions.length > 0) {
    parts.push('', 'The estimate assumes:', ...found.assumptions.map((one) => `- ${plainText(one)}`))
  }
  return parts.join('\n')
}

function rowsOf({
  state,
  at,
  addedAt,
  readyAt,
  startedAt,
  startsAt,
  hold,
  ahead,
  isAheadAtLeast,
  concurrency,
  group,
  keys,
  lane,
  holders,
  cost,
  costs,
  throttledFor,
  failedReason,
  waitedMs,
}: Explanation): string[][] {
  const rows = [
    ['state', state],
    ['cost', costText(cost, costs)],
    ['added', addedAt.toISOString()],
    ['ready', readyAt.toISOString()],
  ]
  if (throttledFor) rows.push(['throttled for', plainText(throttledFor)])
  if (failedReason) rows.push(['failed for', plainText(failedReason)])
  if (startedAt) rows.push(['started', startedAt.toISOString()])
  if (keys) rows.push(['keys', plainText(keysText(keys))])
  if (hold) rows.push(['held by', `${holdText(hold)} since ${hold.since.toISOString()}${untilText(hold)}`])
  for (const other of hold?.others ?? []) {
    rows.push([
      'held by, too',
      `limit ${plainText(other.limit)} of ${plainText(keysText(other.keys))}${untilText(other)}`,
    ])
  }
  if (lane) rows.push(['lane', `${countText(lane.ahead, 'job')} of it before this one`])
  if (concurrency) rows.push(['concurrency', concurrencyText(concurrency)])
  if (group)
    rows.push([
      'group',
      `${plainText(group.id)} (${group.status}), ${countText(group.ahead, 'job')} of it before this one`,
    ])
  for (const holder of holders.slice(0, HOLDERS)) rows.push(['place held by', holderText(holder, at)])
  if (ahead !== undefined) rows.push(['ahead of it', `${isAheadAtLeast ? 'at least ' : ''}${numberText(ahead)}`])
  if (startsAt) {
    const ms = Math.max(0, startsAt.getTime() - at.getTime())
    rows.push([
      'starts',
      `${startsAt.toISOString()} (in ${formatDuration(ms)})${isAheadAtLeast ? ', no sooner unless settled costs give units back' : ''}`,
    ])
  }
  return [...rows, [startedAt ? 'waited' : 'waits', formatDuration(waitedMs)]]
}

function costText(cost: number, costs: Explanation['costs']): string {
  return [
    numberText(cost),
    ...Object.entries(costs ?? {}).map(([unit, units]) => `${plainText(unit)} ${numberText(units)}`),
  ].join(', ')
}

/** The limit of its keys says when it lets the job's lane go. */
function untilText({ keys, until }: Pick<NonNullable<Explanation['hold']>, 'keys' | 'until'>): string {
  return keys && until ? ` until ${until.toISOString()}` : ''
}

function partRows({ parts, waitedMs }: Explanation): string[][] {
  return HOLD_CAUSES.map((cause) => [
    cause,
    numberText(Math.round(parts[cause])),
    `${((100 * parts[cause]) / waitedMs).toFixed(1)}%`,
  ])
}
