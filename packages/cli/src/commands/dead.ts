import type { Command } from 'commander'
import type { DeadLetter, ShapedQueue } from 'sluice'
import { countText, dropDeadLetter, dropDeadLetters, findDeadLetter, plainText, readDeadLetter } from 'sluice/internal'
import { addReason, parseNonEmpty, parseQueueName, type Reason, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'
import { existingQueue, existingStatus } from '../existing-queue.ts'
import { indentedJson, reasonText } from '../queue-text.ts'
import { type Choice, checkChoice, fullId, shortId } from '../short-ids.ts'

export const addCommand: AddCommand = (program, run) => {
  const dead = program
    .command('dead')
    .description('Lists, shows and drops dead letters. To put their jobs back, use redrive.')
  addList(dead, run)
  addShow(dead, run)
  addDrop(dead, run)
}

function addList(dead: Command, run: Runner): void {
  dead
    .command('list')
    .description('Lists dead letters, in the order in which a redrive takes them.')
    .argument('<dead-queue>', 'the queue of dead letters', parseQueueName)
    .option('--start <letter>', 'skip this many', wholeNumber(0, 1_000_000_000), 0)
    .option('--count <letters>', 'show at most this many', wholeNumber(1, 10_000), 50)
    .action(run(list))
}

function addShow(dead: Command, run: Runner): void {
  dead
    .command('show')
    .description('Shows one dead letter: the job with its data, and why it failed.')
    .argument('<dead-queue>', 'the queue of dead letters', parseQueueName)
    .argument('<letter>', 'the id of the letter', parseNonEmpty)
    .action(run(show))
}

function addDrop(dead: Command, run: Runner): void {
  const command = dead
    .command('drop')
    .description('Removes dead letters and their jobs permanently.')
    .argument('<dead-queue>', 'the queue of dead letters', parseQueueName)
    .argument('[letters...]', 'the ids of letters')
    .option('--all', 'all of them')
    .option('--failed-reason <text>', 'those whose reason contains this text', parseNonEmpty)
  addReason(command)
    .addHelpText(
      'after',
      `
Example:
  $ sluice dead drop emails-dead --failed-reason 'no such mailbox' --reason old
`,
    )
    .action(run(drop))
}

async function list(cli: Cli, name: string, { start, count }: { start: number; count: number }): Promise<void> {
  const { waiting } = await existingStatus(cli, name)
  const rows = await cli.inspector().jobs(name, 'waiting', { start, count, data: true })
  const letters = rows.flatMap(({ id, data }) => {
    const letter = readDeadLetter(JSON.stringify(data ?? null))
    return letter ? [{ letterId: id, ...withoutContent(letter) }] : []
  })
  cli.print({ queue: name, total: waiting, letters }, () =>
    letters.length === 0 ? 'no dead letters' : letterTable(cli, letters),
  )
}

/** A job's data is shown only on request. */
function withoutContent({ data: _data, opts: _opts, stacktrace: _trace, ...rest }: DeadLetter) {
  return rest
}

async function show(cli: Cli, name: string, given: string): Promise<void> {
  const queue = await existingQueue(cli, name)
  const letterId = await fullLetterId(queue, given)
  const letter = await findDeadLetter(queue, letterId)
  if (!letter) throw noSuchDeadLetter(name, letterId)
  cli.print({ letterId, ...letter }, () => letterText(cli, letter))
}

async function drop(cli: Cli, name: string, letterIds: string[], options: Choice & Reason): Promise<void> {
  checkChoice('letters', letterIds, options)
  const dropped = new Map<string, DeadLetter>()
  const { reason, failedReason } = options
  try {
    if (letterIds.length > 0) await dropThese(cli, name, letterIds, dropped)
    else await dropMatching(cli, name, options, dropped)
  } finally {
    await noteDropped(
      cli,
      [...dropped.values()],
      { in: name, ...(failedReason === undefined ? {} : { failedReason }) },
      reason,
    )
  }
  cli.print(
    { queue: name, dropped: [...dropped.keys()] },
    () => `${name}: ${countText(dropped.size, 'letter')} dropped`,
  )
}

/** Records it in the history of each queue whose jobs the letters held. */
async function noteDropped(cli: Cli, letters: readonly DeadLetter[], which: object, reason: string): Promise<void> {
  const queues = new Map<string, DeadLetter[]>()
  for (const letter of letters) {
    const key = `${letter.prefix}:${letter.queueName}`
    queues.set(key, [...(queues.get(key) ?? []), letter])
  }
  const client = await cli.connection()
  for (const [key, own] of queues) {
    const [{ id, queueName, prefix }] = own as [DeadLetter]
    if ((await client.exists(`${key}:meta`)) === 0) continue
    const what = own.length === 1 ? { 'dead letter dropped': id } : { 'dead letters dropped': own.length }
    const queue = await cli.queue(queueName, prefix)
    await queue.backend.store.note('job', { ...what, ...which }, { by: cli.by, reason })
  }
}

/** Removes nothing unless all letters exist. */
async function dropThese(
  cli: Cli,
  name: string,
  letterIds: readonly string[],
  dropped: Map<string, DeadLetter>,
): Promise<void> {
  const queue = await existingQueue(cli, name)
  const unique = [...new Set(await Promise.all(letterIds.map((id) => fullLetterId(queue, id))))]
  const letters: [id: string, letter: DeadLetter][] = []
  for (const id of unique) {
    const letter = await findDeadLetter(queue, id)
    if (!letter) throw noSuchDeadLetter(name, id)
    letters.push([id, letter])
  }
  for (const [id, letter] of letters) {
    await dropDeadLetter(queue, id)
    dropped.set(id, letter)
  }
}

async function dropMatching(
  cli: Cli,
  name: string,
  { failedReason = '' }: Choice,
  dropped: Map<string, DeadLetter>,
): Promise<void> {
  const queue = await existingQueue(cli, name)
  const filter = (letter: DeadLetter) => letter.failedReason.includes(failedReason)
  await dropDeadLetters(queue, { filter, signal: cli.signal, onDropped: (id, letter) => dropped.set(id, letter) })
}

function fullLetterId(queue: ShapedQueue, given: string): Promise<string> {
  return fullId(given, () => queue.getRanges(['waiting'], 0, -1))
}

function noSuchDeadLetter(name: string, letterId: string): CommandError {
  return new CommandError(EXIT_CODES.notFound, `no dead letter "${plainText(letterId)}" in queue "${name}"`)
}

type Shown = Omit<DeadLetter, 'data' | 'opts' | 'stacktrace'>

/** Letters, one line each. */
function letterTable(cli: Cli, letters: readonly (Shown & { readonly letterId: string })[]): string {
  return cli.table(
    ['letter', 'queue', 'job', 'name', 'failed', 'attempts', 'redriven', 'why'],
    letters.map((letter) => [
      shortId(letter.letterId),
      plainText(letter.queueName),
      shortId(letter.id),
      plainText(letter.name),
      new Date(letter.finishedOn).toISOString(),
      `${letter.attemptsMade}`,
      `${letter.redriven}`,
      reasonText(letter.failedReason),
    ]),
  )
}

/** One letter in full. */
function letterText(cli: Cli, letter: DeadLetter): string {
  const { data, opts, stacktrace } = letter
  const time = (ms: number | undefined) => (ms === undefined ? '—' : new Date(ms).toISOString())
  const rows = [
    ['job', `${plainText(letter.id)} ${plainText(letter.name)} in ${plainText(letter.queueName)}`],
    ['why', plainText(letter.failedReason)],
    ['added', time(letter.timestamp)],
    ['last began', time(letter.processedOn)],
    ['failed', time(letter.finishedOn)],
    ['attempts', `${letter.attemptsMade}, began ${letter.attemptsStarted}, throttled ${letter.throttled}`],
    ['redriven', `${letter.redriven}`],
  ]
  const traces = stacktrace.flatMap((trace) => ['', ...trace.split('\n').map(plainText)])
  return [cli.table([], rows), '', 'options', indentedJson(opts), 'data', indentedJson(data), ...traces].join('\n')
}
