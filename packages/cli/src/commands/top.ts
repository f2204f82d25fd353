import { setTimeout as sleep } from 'node:timers/promises'
import type { ReadStream } from 'node:tty'
import { InvalidArgumentError } from 'commander'
import { failureKind } from 'sluice/internal'
import { parseDuration, parseQueueName, wholeNumber } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingStatus } from '../existing-queue.ts'
import { jsonLine } from '../json-line.ts'
import { type TopView, topScreen } from '../top-screen.ts'
import { QueueWatch } from '../watch-queues.ts'

/** A look takes three round trips for up to 30 queues, and three more for each 30 beyond. */
const MIN_INTERVAL_MS = 200
const DEFAULT_INTERVAL_MS = 1000
/** Maximum number of queues shown. */
const LIMIT = 100
/** Used where the terminal does not report its size. */
const DEFAULT_ROWS = 24
const DEFAULT_COLUMNS = 80

interface TopOptions {
  readonly interval?: number
  readonly count?: number
  readonly limit: number
}

export const addCommand: AddCommand = (program, run) => {
  program
    .command('top')
    .description(
      'Shows queues and workers live; q or ctrl-c quits. With --json, or if stdout is not a terminal, prints a line of ' +
        'JSON for each update.',
    )
    .argument('[queue]', 'one queue (default: all)', parseQueueName)
    .option('--interval <duration>', 'time between updates, at least 200ms (default: 1s)', parseInterval)
    .option('--limit <queues>', 'show only this many, the fullest', wholeNumber(1, 10_000), LIMIT)
    .option('--count <updates>', 'stop after this many', wholeNumber(1, 1_000_000_000))
    .addHelpText(
      'after',
      `
Examples:
  $ sluice top emails --interval 250ms
  $ sluice top --json --count 60 | jq -c '.queues[] | [.name, .depth]'
`,
    )
    .action(run(top))
}

function parseInterval(text: string): number {
  const ms = parseDuration(text)
  if (ms < MIN_INTERVAL_MS) throw new InvalidArgumentError(`expected at least ${MIN_INTERVAL_MS}ms`)
  return ms
}

async function top(cli: Cli, name: string | undefined, options: TopOptions): Promise<number> {
  if (name !== undefined) await existingStatus(cli, name)
  const stop = new AbortController()
  const quit = () => stop.abort()
  const show = cli.options.json || !process.stdout.isTTY ? lines() : await screen(cli)
  cli.signal.addEventListener('abort', quit)
  const giveBack = onQuitKey(process.stdin, quit)
  try {
    const queues = new QueueWatch(cli.inspector(), name, options.limit)
    await watch((before) => look(cli, queues, before), options, show.view, stop.signal)
  } finally {
    cli.signal.removeEventListener('abort', quit)
    giveBack()
    show.end()
  }
  return 0
}

async function watch(
  look: (before: TopView | undefined) => Promise<TopView>,
  { interval = DEFAULT_INTERVAL_MS, count = Number.POSITIVE_INFINITY }: TopOptions,
  show: (view: TopView) => void,
  signal: AbortSignal,
): Promise<void> {
  let view: TopView | undefined
  for (let looks = 0; looks < count && !signal.aborted; looks += 1) {
    if (looks > 0) await sleep(interval, undefined, { signal }).catch(() => undefined)
    if (signal.aborted) return
    view = await look(view)
    if (!signal.aborted) show(view)
  }
}

/** While Redis is unavailable, the last view stays; if it never answered, the command fails. */
async function look(cli: Cli, queues: QueueWatch, before: TopView | undefined): Promise<TopView> {
  try {
    const [found, redis] = await Promise.all([queues.look(), cli.inspector().redisState()])
    return { queues: found, total: queues.total, redis, at: found[0]?.at ?? new Date() }
  } catch (error) {
    if (!before || !(error instanceof Error) || !failureKind(error)) throw error
    return { ...before, trouble: `Redis does not answer: ${error.message}` }
  }
}

interface Show {
  view(view: TopView): void
  end(): void
}

function lines(): Show {
  return {
    view: ({ at, queues, total, redis, trouble }) => {
      if (trouble === undefined) process.stdout.write(`${jsonLine({ at, total, redis, queues })}\n`)
      else process.stderr.write(`sluice: ${trouble}\n`)
    },
    end: () => undefined,
  }
}

async function screen(cli: Cli): Promise<Show> {
  const { createLogUpdate } = await import('log-update')
  const draw = createLogUpdate(process.stdout)
  return {
    view: (view) => {
      const { rows, columns } = process.stdout
      draw(topScreen(cli, view, (rows || DEFAULT_ROWS) - 1, columns || DEFAULT_COLUMNS))
    },
    end: () => draw.done(),
  }
}

const CTRL_C = '\u0003'

/**
 * Calls `quit` when `q` or ctrl-c is pressed. In raw mode, keys arrive one by one and ctrl-c raises no signal.
 * @returns a function that restores the terminal
 */
function onQuitKey(stdin: ReadStream, quit: () => void): () => void {
  if (!stdin.isTTY) return () => undefined
  const listen = (keys: Buffer) => {
    const text = keys.toString()
    if (text.includes('q') || text.includes(CTRL_C)) quit()
  }
  stdin.setRawMode(true)
  stdin.on('data', listen)
  return () => {
    stdin.off('data', listen)
    stdin.setRawMode(false)
    stdin.pause()
  }
}
