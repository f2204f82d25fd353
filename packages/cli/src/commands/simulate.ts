import { once } from 'node:events'
import { createReadStream, type ReadStream } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { InvalidArgumentError, Option } from 'commander'
import type { QueueStatus } from 'sluice/inspect'
import { countText, formatDuration, parseRate, plainText } from 'sluice/internal'
import { durationOption, parseDuration, parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { existingWithShape } from '../existing-queue.ts'
import type { Arrival } from '../simulate/arrival.ts'
import { arrivalsOf, DEFAULT_GROUP_SIZE, type LoadPart, type LoadPattern } from '../simulate/load.ts'
import { readArrivals } from '../simulate/read-arrivals.ts'
import { seriesOf } from '../simulate/series.ts'
import { parseShapeText, type ShapeText } from '../simulate/shape-text.ts'
import { type Outcome, type SimulationOptions, simulate } from '../simulate/simulation.ts'
import { type Summary, summarize } from '../simulate/summary.ts'
import { drawSimulation } from '../simulate/svg.ts'

interface SimulateOptions {
  readonly arrivals?: string
  readonly load?: readonly LoadPart[]
  readonly pattern: LoadPattern
  readonly groupSize: number
  readonly seed: number
  readonly cost: number | readonly [number, number]
  readonly groups: number
  readonly shape: readonly string[]
  readonly queue: readonly string[]
  readonly jobTime?: number
  readonly concurrency?: number
  readonly svg?: string
}

interface Candidate extends ShapeText {
  readonly label: string
}

interface Simulated extends SimulatedShape, Pick<Candidate, 'shape'> {
  readonly outcome: Outcome
}

const collect =
  <T>(parse: (text: string) => T) =>
  (text: string, before: readonly T[]): T[] => [...before, parse(text)]

const EXAMPLES = `
Examples:
  $ sluice simulate --load '5/s for 1d' \\
      --shape rate=8/s,burst=10,capacity=1000 --shape rate=6/s,capacity=1000
  $ sluice simulate --arrivals arrivals.ndjson --queue emails \\
      --shape rate=20/s --svg emails.svg
  $ sluice simulate --load '9/s for 1h' --groups 20 \\
      --shape '{"rate":"8/s","groups":{},"setGroup":{"group-1":{"rate":"1/s"}}}'
  $ sluice simulate --load '2/s for 8h, 50/s for 10m' --pattern bursty \\
      --shape rate=10/s --job-time 3s --concurrency 20
`

export const addCommand: AddCommand = (program, run) => {
  program
    .command('simulate')
    .description(
      'Predicts waits, refusals and queue length by running the real scripts in virtual time. It keeps Redis busy: use ' +
        'a scratch server.',
    )
    .addOption(
      new Option('--arrivals <file>', "output of sluice record, or plain times; '-' is stdin").conflicts('load'),
    )
    .addOption(
      new Option('--load <text>', "a generated load: '5/s for 1d', or several, separated by commas").argParser(
        parseLoad,
      ),
    )
    .addOption(
      new Option('--pattern <name>', 'how the jobs of a load are spaced')
        .choices(['even', 'poisson', 'bursty'])
        .default('poisson'),
    )
    .option(
      '--group-size <n>',
      'for bursty: jobs that arrive together on average',
      wholeNumber(2, 1e6),
      DEFAULT_GROUP_SIZE,
    )
    .option('--seed <n>', 'the same seed generates the same load', wholeNumber(0, 2 ** 32), 1)
    .addOption(
      new Option('--cost <n>', "cost of generated jobs: '2', or a range '1-5'").argParser(parseCost).default(1),
    )
    .option('--groups <n>', 'groups of generated jobs; most jobs are in a few', wholeNumber(0, 10_000), 0)
    .option('--shape <text>', "'rate=8/s,burst=10,capacity=1000', or JSON; may be repeated", collect(String), [])
    .option('--queue <name>', 'the current shape of a queue; may be repeated', collect(parseQueueName), [])
    .addOption(durationOption('--job-time <duration>', 'how long a job runs (default: 0)'))
    .option('--concurrency <n>', 'jobs that may run at once (default: any)', wholeNumber(1, 1e6))
    .option('--svg <file>', 'plot queue length, waits and rates')
    .addHelpText('after', EXAMPLES)
    .action(run(runSimulations))
}

async function runSimulations(cli: Cli, options: SimulateOptions): Promise<void> {
  const candidates = await candidatesOf(cli, options)
  const arrivals = await arrivalsFor(options)
  const client = await cli.client()
  const { concurrency: places, jobTime: jobMs = 0 } = options
  const service = { signal: cli.signal, jobMs, ...(places === undefined ? {} : { places }) } satisfies SimulationOptions
  const results: Simulated[] = []
  for (const { label, shape, setGroup } of candidates) {
    const startedMs = performance.now()
    const outcome = await simulate(client, shape, arrivals, { ...service, setGroup })
    const seconds = (performance.now() - startedMs) / 1000
    cli.note(`${label}: ${countText(arrivals.length, 'arrival')} in ${seconds.toFixed(1)} s`)
    results.push({ label, shape, outcome, summary: summarize(outcome, shape, arrivals, service) })
  }
  cli.print({ shapes: results.map(({ label, summary }) => ({ label, ...summary })) }, () => {
    const { shapes, legend } = withShortLabels(results)
    const table = simulationTable(shapes, (head, rows) => cli.table(head, rows))
    return [...legend, table, ...shapes.flatMap(simulationNotes)].join('\n')
  })
  // Last, so that the results of a long run are printed even if the file cannot be written.
  if (options.svg !== undefined) await writePlot(options.svg, results, arrivals)
}

async function candidatesOf(cli: Cli, { shape, queue }: SimulateOptions): Promise<Candidate[]> {
  if (shape.length + queue.length === 0) {
    throw new CommandError(EXIT_CODES.usage, 'expected a --shape or a --queue to simulate')
  }
  const given = shape.map((text) => ({ label: text.trim(), ...parseShapeText(text) }))
  const stored: Candidate[] = []
  for (const name of queue) stored.push(await candidateOf(cli, await existingWithShape(cli, name)))
  return [...stored, ...given]
}

/** With overrides, also of groups. Recent feedback and pauses are left out, since they are temporary. */
async function candidateOf(cli: Cli, { name, shape }: QueueStatus): Promise<Candidate> {
  if (!shape) throw new CommandError(EXIT_CODES.notFound, `queue "${name}" has no shape: give one by --shape`)
  const {
    declared: _,
    overrides: __,
    revision: ___,
    pausedUntil: ____,
    pauseReason: _____,
    schedule,
    ...fields
  } = shape
  const setGroup = shape.groups ? await cli.inspector().groupOverrides(name) : {}
  return { label: `${name} as it is`, shape: schedule ? { ...fields, rate: schedule } : fields, setGroup }
}

async function arrivalsFor({ arrivals, load, ...terms }: SimulateOptions): Promise<Arrival[]> {
  const { pattern, groupSize, seed, cost, groups } = terms
  if (load !== undefined) return arrivalsOf({ parts: load, pattern, groupSize, seed, cost, groups })
  if (arrivals === undefined) {
    throw new CommandError(EXIT_CODES.usage, 'expected --arrivals or --load: which jobs arrive')
  }
  const input = arrivals === '-' ? process.stdin : await openFile(arrivals)
  return readArrivals(createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY }))
}

async function openFile(file: string): Promise<ReadStream> {
  const stream = createReadStream(file)
  await once(stream, 'open').catch((error: Error) => {
    throw new CommandError(EXIT_CODES.usage, `cannot read ${file}: ${error.message}`)
  })
  return stream
}

async function writePlot(file: string, results: readonly Simulated[], arrivals: readonly Arrival[]): Promise<void> {
  const [first, last] = [arrivals[0] as Arrival, arrivals.at(-1) as Arrival]
  const plot = drawSimulation({
    title: 'Queue length and waits, simulated',
    subtitle: `${countText(arrivals.length, 'arrival')} within ${formatDuration((last.atUs - first.atUs) / 1000)}, from ${new Date(first.atUs / 1000).toUTCString()}`,
    shapes: results.map(({ label, shape, summary, outcome }) => ({
      label,
      note: simulationLegend(summary),
      series: seriesOf(outcome, arrivals, shape),
    })),
  })
  await writeFile(file, plot).catch((error: Error) => {
    throw new CommandError(EXIT_CODES.usage, `cannot write ${file}: ${error.message}`)
  })
}

const EXPECTED = "expected a load such as '5/s for 1d', or several: '5/s for 8h, 50/s for 10m'"

/**
 * Reads a load: rates, and for how long each holds.
 * @throws InvalidArgumentError, InvalidRateError
 */
function parseLoad(text: string): LoadPart[] {
  return text.split(',').map((part) => {
    const [rate, duration, ...more] = part.split(/\sfor\s/).map((words) => words.trim())
    if (!rate || !duration || more.length > 0) throw new InvalidArgumentError(EXPECTED)
    parseRate(rate)
    return { rate, forMs: parseDuration(duration) }
  })
}

/**
 * Reads a cost: a number, or a range of whole ones.
 * @throws InvalidArgumentError
 */
function parseCost(text: string): number | readonly [number, number] {
  const [, from, to] = /^(\d+(?:\.\d+)?)(?:-(\d+))?$/.exec(text.trim()) ?? []
  if (from === undefined) throw new InvalidArgumentError("expected a cost such as '2', or a range such as '1-5'")
  return to === undefined ? Number(from) : [Number(from), Number(to)]
}

interface SimulatedShape {
  readonly label: string
  readonly summary: Summary
}

const HEAD = [
  'shape',
  'accepted',
  'refused',
  'p50',
  'p95',
  'p99',
  'max wait',
  'longest queue',
  'utilisation',
  'finished after',
]

const LONGEST_LABEL = 40

/** Numbers shapes that would make the table too wide, as JSON does. @returns them, and a line for each number */
function withShortLabels<T extends SimulatedShape>(shapes: readonly T[]): { shapes: T[]; legend: string[] } {
  const isLong = ({ label }: T) => label.length > LONGEST_LABEL
  const numbered = (at: number) => `shape ${at + 1}`
  return {
    shapes: shapes.map((shape, at) => (isLong(shape) ? { ...shape, label: numbered(at) } : shape)),
    legend: shapes.flatMap((shape, at) => (isLong(shape) ? [`${numbered(at)}: ${shape.label}`] : [])),
  }
}

/** One row per shape. */
function simulationTable(
  shapes: readonly SimulatedShape[],
  table: (head: readonly string[], rows: readonly (readonly string[])[]) => string,
): string {
  const hasGroups = shapes.some(({ summary }) => summary.groups)
  return table(
    hasGroups ? [...HEAD, 'fairness'] : HEAD,
    shapes.map(({ label, summary }) => [
      label,
      String(summary.accepted),
      `${summary.refused} (${percent(summary.refusedShare)})`,
      ...(['p50', 'p95', 'p99', 'max'] as const).map((one) => formatDuration(summary.waitMs?.[one])),
      String(summary.longestQueue),
      percent(summary.utilisation ?? summary.placeUtilisation),
      formatDuration(summary.finishedAfterMs),
      ...(hasGroups ? [summary.groups?.fairness.toFixed(3) ?? '—'] : []),
    ]),
  )
}

/**
 * What the table does not show: why jobs were refused, and where concurrency rather than the rate decided the start
 * times.
 */
function simulationNotes({ label, summary }: SimulatedShape): string[] {
  const { refusedBy, dropped, groups, placeBound, started, placeUtilisation, utilisation } = summary
  const notes: string[] = []
  const refused = [
    [refusedBy.full, 'found no place'],
    [refusedBy.late, 'could not start in time'],
    [refusedBy.tooDear, 'cost more than is ever allowed'],
  ] as const
  for (const [count, why] of refused) if (count > 0) notes.push(`${label}: ${count} ${why}`)
  if (groups?.longestWait) {
    const { group, ms } = groups.longestWait
    const median = formatDuration(groups.medianLongestWaitMs)
    notes.push(
      `${label}: of ${countText(groups.count, 'group')}, ${plainText(group)} waited longest, up to ${formatDuration(ms)}; the median group up to ${median}`,
    )
  }
  if (dropped > 0) notes.push(`${label}: ${dropped} dropped to make room for later ones`)
  if (placeBound > 0) {
    const running = placeUtilisation === undefined ? '' : `; the places are ${percent(placeUtilisation)} in use`
    notes.push(
      `${label}: concurrency binds: ${percent(placeBound / started)} of the starts waited for a place${running}`,
    )
  } else if (placeUtilisation !== undefined && utilisation !== undefined) {
    notes.push(`${label}: concurrency does not bind: the places are ${percent(placeUtilisation)} in use`)
  }
  return notes
}

/** The text after a shape in the legend of a plot. */
function simulationLegend({ refused, refusedShare, waitMs, utilisation }: Summary): string {
  const parts = [waitMs ? `p95 ${formatDuration(waitMs.p95)}, max ${formatDuration(waitMs.max)}` : 'nothing started']
  parts.push(refused > 0 ? `${percent(refusedShare)} refused` : 'none refused')
  if (utilisation !== undefined) parts.push(`${percent(utilisation)} of the rate`)
  return parts.join(' · ')
}

function percent(part: number | undefined): string {
  if (part === undefined) return '—'
  const digits = part > 0 && part < 0.001 ? 3 : 1
  return `${Number((part * 100).toFixed(digits))}%`
}
