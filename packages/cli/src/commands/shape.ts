import type { Command } from 'commander'
import type { EffectiveShape, ShapeField, ShapeValue } from 'sluice'
import type { HistoryEntry, QueueStatus } from 'sluice/inspect'
import { decodeField, formatDuration, formatValue, plainText, type StoredValue } from 'sluice/internal'
import { addReason, durationOption, parseQueueName, type Reason, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'
import { existingStatus, existingWhole, existingWithShape } from '../existing-queue.ts'
import { lastsText } from '../queue-text.ts'
import { addFieldOptions, FIELD_OPTIONS, overrideFrom } from '../shape-fields.ts'

export const addCommand: AddCommand = (program, run) => {
  const shape = program.command('shape').description('Shows and changes the shape of a queue, for all workers.')
  addShow(shape, run)
  addSet(shape, run)
  addClear(shape, run)
  addHistory(shape, run)
}

function addShow(shape: Command, run: Runner): void {
  shape
    .command('show')
    .description('Shows the effective shape, and where each field comes from.')
    .argument('<queue>', 'the queue', parseQueueName)
    .action(run(show))
}

function addSet(shape: Command, run: Runner): void {
  const command = shape
    .command('set')
    .description("Overrides fields of the shape for all workers, until --for expires or 'shape clear' runs.")
    .argument('<queue>', 'the queue', parseQueueName)
    .addHelpText('after', SET_EXAMPLES)
  addFieldOptions(command)
  command.addOption(durationOption('--for <duration>', 'for how long (default: until cleared)'))
  addReason(command).action(run(set))
}

const SET_EXAMPLES = `
The value 'none' lifts a limit.

Examples:
  $ sluice shape set emails --rate 20/s --for 1h --reason 'the provider is slow'
  $ sluice shape set emails --rate @office-hours.json --reason 'quiet hours'
  $ sluice shape set emails --capacity none --max-wait 10m --reason quarter-end
`

function addClear(shape: Command, run: Runner): void {
  const command = shape
    .command('clear')
    .description('Ends overrides: the declared values apply again.')
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('[fields...]', 'fields such as rate or maxWaitMs (default: all)')
    .addHelpText('after', "\nExample:\n  $ sluice shape clear emails rate --reason 'the provider has recovered'\n")
  addReason(command).action(run(clear))
}

function addHistory(shape: Command, run: Runner): void {
  shape
    .command('history')
    .description('Shows who changed what, why and until when, newest first.')
    .argument('<queue>', 'the queue', parseQueueName)
    .option('--count <entries>', 'show at most this many', wholeNumber(1, 1000), 50)
    .action(run(showHistory))
}

async function show(cli: Cli, name: string): Promise<void> {
  const status = await existingWithShape(cli, name)
  const { shape, rate, cause, concurrency, at } = status
  cli.print({ queue: name, at, rate, cause, concurrency, shape: shape ?? null }, () =>
    shape
      ? shapeText(cli, { ...status, shape })
      : `${name} has no shape: nothing is limited, and no shaped worker takes its jobs`,
  )
}

interface SetOptions extends Readonly<Record<string, unknown>> {
  readonly reason: string
  readonly for?: number
}

async function set(cli: Cli, name: string, options: SetOptions): Promise<void> {
  const { encodeOverride } = await import('sluice/internal')
  const override = overrideFrom(options)
  if (Object.keys(override).length === 0) {
    throw new CommandError(EXIT_CODES.usage, "expected at least one field and its value, such as '--rate 20/s'")
  }
  // Invalid input is reported before Redis is asked.
  encodeOverride(override)
  const { reason, for: ttlMs } = options
  const queue = await existingWhole(cli, name)
  await queue.setShape(override, { by: cli.by, reason, ...(ttlMs === undefined ? {} : { ttlMs }) })
  const fields = Object.keys(override).join(', ')
  cli.print({ queue: name, set: override, forMs: ttlMs, by: cli.by, reason }, () => {
    return `${name}: ${fields} set ${lastsText(ttlMs)}`
  })
}

async function clear(cli: Cli, name: string, fields: string[], { reason }: Reason): Promise<void> {
  const known = Object.keys(FIELD_OPTIONS)
  const unknown = fields.find((field) => !known.includes(field))
  if (unknown !== undefined) {
    throw new CommandError(EXIT_CODES.usage, `no field '${unknown}' can be cleared; expected ${known.join(', ')}`)
  }
  const queue = await existingWhole(cli, name)
  const chosen = fields.length > 0 ? (fields as ShapeField[]) : undefined
  await queue.clearShape({ fields: chosen, by: cli.by, reason })
  const cleared = fields.length === 0 ? 'all' : fields
  cli.print({ queue: name, cleared, by: cli.by, reason }, () => {
    return `${name}: ${fields.length === 0 ? 'all overrides' : fields.join(', ')} cleared`
  })
}

async function showHistory(cli: Cli, name: string, { count }: { readonly count: number }): Promise<void> {
  await existingStatus(cli, name)
  const history = await cli.inspector().history(name, { count })
  cli.print({ queue: name, history }, () => (history.length === 0 ? 'nothing changed yet' : historyTable(cli, history)))
}

/** Keys of an effective shape that are not fields. */
const NO_FIELDS = ['revision', 'pausedUntil', 'pauseReason', 'declared', 'overrides']

/** The fields in force and where they come from, one line each. */
function shapeText(cli: Cli, status: QueueStatus & { readonly shape: EffectiveShape }): string {
  const { shape, at } = status
  const inForce = Object.entries(shape).filter(([field, value]) => !NO_FIELDS.includes(field) && value !== undefined)
  // A field lifted by an override is missing from the fields in force.
  const lifted = Object.entries(shape.overrides).filter(([, { value }]) => value === null)
  const fields = new Map<string, unknown>([...inForce, ...lifted.map(([field]) => [field, 'none'] as const)])
  const rows = [...fields].map(
    ([field, value]) =>
      timedRow(cli, status, field) ??
      fedRow(cli, status, field) ?? [field, valueText(value), ...sourceCells(cli, shape, field, at)],
  )
  return cli.table(['field', 'value', 'from', 'by', 'until', 'why'], rows)
}

/** A rate that follows the clock: what is in force now, and until when. */
function timedRow(cli: Cli, { rate, rateChangesAt, shape, at }: QueueStatus, field: string): string[] | undefined {
  if (!shape?.schedule || (field !== 'rate' && field !== 'schedule')) return undefined
  if (field === 'schedule') return [field, valueText(shape.schedule), ...sourceCells(cli, shape, 'rate', at)]
  const until = rateChangesAt && untilText(rateChangesAt, at)
  return [field, `${rate ?? shape.rate} now`, cli.colors.dim('schedule'), '', until ?? '', '']
}

/** A field that feedback keeps below the set value: shows both values. */
function fedRow(cli: Cli, { concurrency, rate, cause, shape, at, feedback }: QueueStatus, field: string) {
  const why = plainText(feedback?.last?.reason ?? '')
  if (field === 'rate' && cause === 'feedback' && rate !== undefined) {
    return [field, rate, cli.colors.cyan(`feedback, ${shape?.rate} set`), '', '', why]
  }
  if (field !== 'concurrency' || !concurrency || concurrency.set === concurrency.inForce) return undefined
  const from = `${concurrency.cause}, ${concurrency.set ?? 'none'} set`
  const until = concurrency.until ? untilText(concurrency.until, at) : ''
  return [
    field,
    String(concurrency.inForce),
    cli.colors.cyan(from),
    '',
    until,
    concurrency.cause === 'feedback' ? why : '',
  ]
}

function sourceCells({ colors }: Cli, shape: EffectiveShape, field: string, at: Date): string[] {
  const override = shape.overrides[field]
  const declared = shape.declared[field]
  if (override) {
    const from = colors.cyan(declared ? `override of ${valueText(declared.value)}` : 'override')
    return [from, plainText(override.by), untilText(override.until, at), plainText(override.reason)]
  }
  return declared ? ['declared', plainText(declared.by), '', ''] : [colors.dim('default'), '', '', '']
}

function untilText(until: Date | undefined, at: Date): string {
  if (!until) return 'it is cleared'
  return `${until.toISOString()} (${formatDuration(until.getTime() - at.getTime())})`
}

function valueText(value: unknown): string {
  return plainText(formatValue(value as ShapeValue))
}

/** Changes, one line each. */
function historyTable(cli: Cli, history: readonly HistoryEntry[]): string {
  return cli.table(
    ['at', 'what', 'by', 'change', 'until', 'why'],
    history.map(({ at, kind, by, reason, change, until }) => [
      at.toISOString(),
      kind,
      plainText(by),
      plainText(changeText(change)),
      until?.toISOString() ?? '',
      plainText(reason),
    ]),
  )
}

function changeText(change: Readonly<Record<string, unknown>>): string {
  return Object.entries(change)
    .map(([field, value]) => (isCleared(value) ? field : `${field}=${changedText(field, value)}`))
    .join(' ')
}

/** For a field whose override was cleared, only the name is shown. */
function isCleared(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'clear' in value
}

/** The history holds values as stored: a rate is two numbers, places and limits are a string. */
function changedText(field: string, value: unknown): string {
  if (value === null) return 'none'
  const isStored = field === 'rate' ? Array.isArray(value) : typeof value === 'string'
  if (isStored) return formatValue(decodeField(field, value as StoredValue))
  return typeof value === 'string' ? value : JSON.stringify(value)
}
