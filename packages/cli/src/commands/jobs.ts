import type { Command } from 'commander'
import type { ShapedQueue } from 'sluice'
import type { JobDetail, JobRow } from 'sluice/inspect'
import { changeFailed, changeMatching, countText, plainText } from 'sluice/internal'
import { addReason, parseNonEmpty, parseQueueName, type Reason, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'
import { existingParts, existingQueue, existingStatus } from '../existing-queue.ts'
import { indentedJson, reasonText } from '../queue-text.ts'
import { type Choice, checkChoice, fullId, shortId } from '../short-ids.ts'

export const addCommand: AddCommand = (program, run) => {
  const jobs = program.command('jobs').description('Shows jobs; lists and retries failed ones.')
  addFailed(jobs, run)
  addShow(jobs, run)
  addRetry(jobs, run)
}

function addFailed(jobs: Command, run: Runner): void {
  jobs
    .command('failed')
    .description('Lists failed jobs, latest first.')
    .argument('<queue>', 'the queue', parseQueueName)
    .option('--start <job>', 'skip this many', wholeNumber(0, 1_000_000_000), 0)
    .option('--count <jobs>', 'show at most this many', wholeNumber(1, 10_000), 50)
    .action(run(listFailed))
}

function addShow(jobs: Command, run: Runner): void {
  jobs
    .command('show')
    .description('Shows one job with its data, options, logs and stack traces.')
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('<job>', 'the id of the job', parseNonEmpty)
    .action(run(show))
}

function addRetry(jobs: Command, run: Runner): void {
  const command = jobs
    .command('retry')
    .description(
      'Puts failed jobs back, each for one more attempt; they leave at the rate. With --all or --failed-reason, the ' +
        'oldest go first, as places become free.',
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('[jobs...]', 'the ids of jobs')
    .option('--all', 'all that have failed so far')
    .option('--failed-reason <text>', 'those whose reason contains this text', parseNonEmpty)
  addReason(command)
    .addHelpText(
      'after',
      `
Example:
  $ sluice jobs retry emails --failed-reason ECONNREFUSED --reason 'it is back'
`,
    )
    .action(run(retry))
}

async function listFailed(cli: Cli, name: string, page: { start: number; count: number }): Promise<void> {
  const { failedKept } = await existingStatus(cli, name)
  const jobs = await cli.inspector().jobs(name, 'failed', page)
  cli.print({ queue: name, total: failedKept, jobs }, () =>
    jobs.length === 0 ? 'no failed jobs' : failedTable(cli, jobs),
  )
}

function failedTable(cli: Cli, jobs: readonly JobRow[]): string {
  return cli.table(
    ['job', 'name', 'failed', 'attempts', 'why'],
    jobs.map(({ id, name, finishedAt, attemptsStarted, failedReason = '' }) => [
      shortId(id),
      plainText(name),
      finishedAt?.toISOString() ?? '—',
      `${attemptsStarted}`,
      reasonText(failedReason),
    ]),
  )
}

async function show(cli: Cli, name: string, given: string): Promise<void> {
  const parts = await existingParts(cli, name)
  const id = await fullJobId(parts, given)
  const job = (await cli.inspector().job(name, id, { data: true })) ?? noJob(name, id)
  const shown = { queue: name, ...job }
  cli.print(shown, () => jobText(cli, shown))
}

function jobText(cli: Cli, job: JobDetail & { readonly queue: string }): string {
  const { failedReason, logs, stacktrace } = job
  const time = (at: Date | undefined) => at?.toISOString() ?? '—'
  const rows = [
    ['job', `${plainText(job.id)} ${plainText(job.name)} in ${plainText(job.queue)}`],
    ['state', job.state],
    ...(failedReason ? [['why', plainText(failedReason)]] : []),
    ['added', time(job.addedAt)],
    ['last began', time(job.startedAt)],
    ['ended', time(job.endedAt)],
    ['attempts', `${job.attemptsMade}`],
    ['progress', plainText(JSON.stringify(job.progress) ?? '—')],
  ]
  const parts = [cli.table([], rows), '', 'options', indentedJson(job.opts), 'data', indentedJson(job.data)]
  if (job.returnvalue != null) parts.push('result', indentedJson(job.returnvalue))
  if (logs.length > 0) parts.push('logs', ...logs.map((line) => `  ${plainText(line)}`))
  return [...parts, ...stacktrace.flatMap((trace) => ['', ...trace.split('\n').map(plainText)])].join('\n')
}

async function retry(cli: Cli, name: string, given: string[], options: Choice & Reason): Promise<void> {
  checkChoice('jobs', given, options)
  const queue = await existingQueue(cli, name)
  const retried: string[] = []
  const onRetried = (id: string) => retried.push(id)
  const { reason, failedReason } = options
  try {
    if (given.length > 0) await retryThese(queue, given, onRetried)
    else await changeMatching(queue, { kind: 'retry' }, { failedReason, signal: cli.signal, onChanged: onRetried })
  } finally {
    const which = failedReason === undefined ? {} : { failedReason }
    const change = { retried: retried.length === 1 ? retried[0] : retried.length, ...which }
    if (retried.length > 0) await queue.backend.store.note('job', change, { by: cli.by, reason })
  }
  cli.print({ queue: name, retried }, () => `${name}: ${countText(retried.length, 'job')} put back`)
}

/** Retries nothing unless all jobs exist and have failed, and stops at the first for which there is no place. */
async function retryThese(
  queue: ShapedQueue,
  given: readonly string[],
  onRetried: (id: string) => void,
): Promise<void> {
  const ids = [...new Set(await Promise.all(given.map((id) => fullJobId([queue], id))))]
  for (const id of ids) await checkFailed(queue, id)
  for (const id of ids) {
    if (await changeFailed(queue, id, { kind: 'retry' })) await checkFailed(queue, id)
    onRetried(id)
  }
}

async function checkFailed(queue: ShapedQueue, id: string): Promise<void> {
  const state = await queue.getJobState(id)
  if (state === 'unknown') noJob(queue.name, id)
  if (state === 'failed') return
  throw new CommandError(EXIT_CODES.usage, `job "${plainText(id)}" has not failed: it is ${state}`)
}

function fullJobId(queues: readonly ShapedQueue[], given: string): Promise<string> {
  return fullId(given, async () => {
    const ids = await Promise.all(queues.map((queue) => queue.getRanges(['failed'], 0, -1)))
    return ids.flat()
  })
}

function noJob(queueName: string, id: string): never {
  throw new CommandError(EXIT_CODES.notFound, `no job "${plainText(id)}" in queue "${queueName}"`)
}
