import { Command, InvalidArgumentError, Option } from 'commander'
import { parseRate } from '../../src/index.ts'
import { usual } from './limits.ts'

/** The options of the command line. */
export interface DemoOptions {
  /** Undefined: the default of the run, which depends on the Redis that was found. The same holds for `capacity`. */
  rate?: string
  capacity?: number
  workers: number
  /** Undefined: examples/outbox.ndjson. */
  input?: string
  compare?: true
  /** Serve the dashboard of a queue in which something happens, until Ctrl-C, instead of sending the outbox. */
  dashboard?: true
  /** Undefined: the outbox is sent. */
  tenants?: number
  /** How long the mails of the tenants take at the rate. */
  seconds?: number
  /** File for the plot of the tenants. */
  plot?: string
}

/** What a run is started with. */
export interface StartOptions extends DemoOptions {
  /** The folder of the compiled programs. */
  programs: string
}

const description = [
  'Sends real mail through an SMTP server and writes rows to PostgreSQL, from several worker processes, at a fixed rate.',
  '',
  'Finds or starts a Redis, a PostgreSQL and an SMTP server on this machine, lets two producers enqueue the lines of an outbox as fast as they can, and reports at the end what the two receivers saw. Everything it started is stopped.',
].join('\n')

const after = `
Input: one JSON object per line, either
{"kind":"email","from":…,"to":…,"subject":…,"text":…}   also "cc" and "html"
{"kind":"write","statement":"record-event","parameters":{"name":…,"details":…}}
as in examples/outbox.ndjson. The statements and their parameters are in
workers/demo/statements.json: record-order, record-event, record-audit.

Examples:
  npm start
  npm start -- --rate 1000/min --capacity 50
  npm start -- --workers 1 --input my-outbox.ndjson
  npm start -- --compare
  npm start -- --dashboard
  npm start -- --tenants 20 --plot tenants.svg

Exit code: 0 when every promise held; 1 when a departure broke the bound, a job
is missing or arrived twice, or something could not be started; 2 when the
command line or the input is wrong; 130 after Ctrl-C; 141 when the reader of
its output has gone.`

/** The end of every message about invalid arguments or input. */
export const seeHelp = 'see npm start -- --help'

function rateText(text: string): string {
  try {
    parseRate(text)
    return text
  } catch {
    throw new InvalidArgumentError(
      'Expected a rate such as 50/s, 1000/min, 100/15min or 10000/day (units ms, s, min, h, day).',
    )
  }
}

function wholeNumber(from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!/^\d+$/.test(text) || value < from || value > to) {
      throw new InvalidArgumentError(`Expected a whole number from ${from} to ${to}, got "${text}".`)
    }
    return value
  }
}

/**
 * Reads the command line (without node and script).
 * @throws CommanderError after printing the help (exit code 0) or an error (any other)
 */
export function parseOptions(args: readonly string[]): DemoOptions {
  const command = new Command('npm start --')
    .description(description)
    .option('--rate <rate>', `how fast each queue drains, such as 50/s or 1000/min (default: ${usual.rate})`, rateText)
    .option(
      '--capacity <jobs>',
      `how many jobs may wait in each queue (default: ${usual.capacity})`,
      wholeNumber(1, 1_000_000),
    )
    .option('--workers <processes>', 'worker processes for each queue', wholeNumber(1, 32), 3)
    .option('--input <file>', 'your own outbox, NDJSON (default: examples/outbox.ndjson)')
    .option('--compare', "run it again with BullMQ's own limiter and show both")
    .addOption(
      new Option('--dashboard', 'serve the dashboard with a story to watch, until Ctrl-C').conflicts([
        'rate',
        'capacity',
        'input',
        'compare',
      ]),
    )
    .addOption(
      new Option('--tenants <number>', 'mails of this many tenants instead, in one line and then in groups')
        .argParser(wholeNumber(2, 200))
        .conflicts(['capacity', 'input', 'compare', 'dashboard']),
    )
    .option('--seconds <number>', 'how long the mails of the tenants take (default: 20)', wholeNumber(1, 600))
    .option('--plot <file>', 'write the longest waits of the tenants as an SVG plot')
    .addHelpText('after', after)
    .allowExcessArguments(false)
    .showHelpAfterError(seeHelp)
    .exitOverride()
    .parse(args, { from: 'user' })
  const options = command.opts<DemoOptions>()
  const lonely = (['seconds', 'plot'] as const).find((name) => options[name] !== undefined)
  if (lonely && options.tenants === undefined) command.error(`error: option '--${lonely}' needs '--tenants <number>'`)
  return options
}
