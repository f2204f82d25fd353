import { randomUUID } from 'node:crypto'
import { Presets, SingleBar } from 'cli-progress'
import { InvalidArgumentError } from 'commander'
import { countText } from 'sluice/internal'
import { durationOption, parseNonEmpty, parseQueueName } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingQueue } from '../existing-queue.ts'
import { JobAdder } from '../job-adder.ts'
import { checkJobFile, jobsIn, jobsOfFile } from '../job-file.ts'
import { numberText } from '../queue-text.ts'

const DAY_MS = 86_400_000
const MAX_KEY_LENGTH = 512

interface EnqueueOptions {
  readonly file: string
  readonly key?: string
  readonly remember: number
  readonly timeout?: number
  readonly wait: boolean
}

export const addCommand: AddCommand = (program, run) => {
  program
    .command('enqueue')
    .description(
      'Adds jobs from a file, one line of JSON each: {"name": …, "data": …, "opts": {…}}. It waits while the queue is ' +
        'full. Run again, it adds nothing twice.',
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .requiredOption('--file <file>', "the file; '-' is stdin (required)", parseNonEmpty)
    .option('--key <text>', "name of the run, which adds each line once (default: the file's content)", parseKey)
    .addOption(durationOption('--remember <duration>', 'how long a run is remembered').default(DAY_MS, '1d'))
    .addOption(durationOption('--timeout <duration>', 'give up when a job has waited this long for a place'))
    .option('--no-wait', 'give up when the queue is full')
    .addHelpText(
      'after',
      `
Examples:
  $ export-jobs | sluice enqueue emails --file - --key 2026-01-31
  $ sluice enqueue emails --file jobs.ndjson --timeout 10m || echo 'still full'
`,
    )
    .action(run(enqueue))
}

function parseKey(text: string): string {
  if (text.length > MAX_KEY_LENGTH) throw new InvalidArgumentError(`expected at most ${MAX_KEY_LENGTH} characters`)
  return parseNonEmpty(text)
}

async function enqueue(cli: Cli, name: string, options: EnqueueOptions): Promise<void> {
  const { file, remember: ttlMs } = options
  const isStdin = file === '-'
  const checked = isStdin ? undefined : await checkJobFile(file)
  const key = options.key ?? checked?.hash ?? randomUUID()
  const queue = await existingQueue(cli, name)
  const timeoutMs = options.wait ? options.timeout : 0
  const adder = new JobAdder(queue, { key, ttlMs, timeoutMs, signal: cli.signal })
  const progress = startProgress(checked?.jobs)
  const { counts } = adder
  try {
    const jobs = isStdin ? jobsIn(process.stdin, 'stdin') : jobsOfFile(file)
    await adder.addAll(jobs, () => progress.update(counts.added + counts.present))
  } catch (error) {
    progress.end()
    const hint = isStdin && options.key === undefined ? '' : `; to continue: --key ${key}`
    cli.note(`${countText(counts.added, 'job')} added, ${numberText(counts.present)} were already there${hint}`)
    throw error
  }
  progress.end()
  cli.print({ queue: name, key, ...counts }, () => {
    return `${name}: ${countText(counts.added, 'job')} added, ${numberText(counts.present)} were already there`
  })
}

/** A progress bar on stderr, shown only on a terminal. */
interface Progress {
  update(done: number): void
  end(): void
}

/** @param total undefined where unknown */
function startProgress(total: number | undefined, stream: NodeJS.WriteStream = process.stderr): Progress {
  if (!stream.isTTY) return { update: () => undefined, end: () => undefined }
  const counted = '{bar} {percentage}% · {value} of {total} jobs · {duration_formatted} · {eta_formatted} left'
  const format = total === undefined ? '{value} jobs · {duration_formatted}' : counted
  const bar = new SingleBar(
    { format, stream, hideCursor: true, noTTYOutput: false, etaBuffer: 200 },
    Presets.shades_grey,
  )
  bar.start(total ?? 0, 0)
  return {
    update: (done) => bar.update(done),
    end: () => bar.stop(),
  }
}
