import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import type { Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { InvalidArgumentError, Option } from 'commander'
import { countText } from 'sluice/internal'
import { durationOption, parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError } from '../cli.ts'
import { existingUnsharded } from '../existing-queue.ts'
import { EXIT_CODES } from '../exit-codes.ts'
import { jsonLine } from '../json-line.ts'
import type { RecordedArrival } from '../simulate/arrival.ts'
import { type Recording, recordArrivals } from '../simulate/recorder.ts'

interface RecordCommandOptions {
  readonly out?: string
  readonly for?: number
  readonly count?: number
  readonly since?: Date
}

export const addRecordCommand: AddCommand = (program, run) => {
  program
    .command('record')
    .description('Records the arrivals of a queue for simulate, until ctrl-c. It only reads.')
    .argument('<queue>', 'the queue', parseQueueName)
    .option('--out <file>', 'the file to write (default: stdout)')
    .addOption(durationOption('--for <duration>', 'for how long, from --since (default: until interrupted)'))
    .option('--count <n>', 'stop after this many arrivals', wholeNumber(1, Number.MAX_SAFE_INTEGER))
    .addOption(
      new Option('--since <time>', "when to start, as far back as BullMQ's events reach (default: now)").argParser(
        pastTime,
      ),
    )
    .addHelpText(
      'after',
      `
Examples:
  $ sluice record emails --since 2026-01-31T18:00:00Z --count 1000 > a.ndjson
  $ sluice simulate --arrivals a.ndjson --queue emails --shape rate=8/s
`,
    )
    .action(run(record))
}

async function record(cli: Cli, name: string, options: RecordCommandOptions): Promise<number> {
  await existingUnsharded(cli, name)
  const out = options.out === undefined ? process.stdout : await openFile(options.out)
  const recording = await recordArrivals(
    await cli.client(),
    `${cli.options.prefix}:${name}:`,
    {
      signal: cli.signal,
      ...(options.for === undefined ? {} : { forMs: options.for }),
      ...(options.count === undefined ? {} : { count: options.count }),
      ...(options.since === undefined ? {} : { since: options.since }),
    },
    (arrival) => writeLine(out, arrival),
  )
  if (options.out !== undefined) {
    out.end()
    await finished(out)
  }
  cli.note(cli.options.json ? JSON.stringify(recording) : summaryText(recording))
  return EXIT_CODES.done
}

async function openFile(file: string): Promise<Writable> {
  const stream = createWriteStream(file)
  try {
    await once(stream, 'open')
    return stream
  } catch (error) {
    throw new CommandError(EXIT_CODES.usage, `cannot write ${file}: ${(error as Error).message}`)
  }
}

async function writeLine(out: Writable, arrival: RecordedArrival): Promise<void> {
  if (!out.write(`${jsonLine(arrival)}\n`)) await once(out, 'drain')
}

function summaryText({ arrivals, gone, refused, isIncomplete }: Recording): string {
  const parts = [`recorded ${countText(arrivals, 'arrival')}`]
  if (gone > 0) parts.push(`${gone} gone already: cost taken as 1`)
  if (refused > 0) parts.push(`${refused} of these refused: cost taken as 1, times known to a second`)
  if (isIncomplete) parts.push('some events were trimmed before they were read: the recording is not complete')
  return parts.join('; ')
}

function pastTime(text: string): Date {
  const time = /^\d{4}-\d\d-\d\dT/.test(text) ? new Date(text) : new Date(Number.NaN)
  if (Number.isNaN(time.getTime())) throw new InvalidArgumentError("expected a time such as '2026-01-31T18:00:00Z'")
  return time
}
