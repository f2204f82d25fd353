import type { Command } from 'commander'
import type { ShapeField } from 'sluice'
import { formatDuration } from 'sluice/internal'
import { addReason, durationOption, parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, type Runner } from '../cli.ts'
import { existingStatus, existingWhole, existingWithShape } from '../existing-queue.ts'
import { EXIT_CODES } from '../exit-codes.ts'
import { addFieldOptions, FIELD_OPTIONS, overrideFrom } from '../shape-fields.ts'
import { historyTable, shapeText } from '../shape-text.ts'

export const addShapeCommand: AddCommand = (program, run) => {
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
    .description("Overrides fields of the shape for all workers, until --for is over or 'shape clear'.")
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
  const until = ttlMs === undefined ? 'until cleared' : `for ${formatDuration(ttlMs)}`
  cli.print({ queue: name, set: override, forMs: ttlMs, by: cli.by, reason }, () => `${name}: ${fields} set ${until}`)
}

async function clear(cli: Cli, name: string, fields: string[], { reason }: { readonly reason: string }): Promise<void> {
  const known: readonly string[] = FIELD_OPTIONS.map(({ field }) => field)
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
