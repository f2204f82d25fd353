import type { EffectiveShape, ShapeValue } from 'sluice'
import type { HistoryEntry, QueueStatus } from 'sluice/inspect'
import { decodeField, formatDuration, formatValue, plainText, type StoredValue } from 'sluice/internal'
import type { Cli } from './cli.ts'

/** Keys of an effective shape that are not fields. */
const NO_FIELDS = ['revision', 'pausedUntil', 'pauseReason', 'declared', 'overrides']

/** The fields in force and where they come from, one line each. */
export function shapeText(cli: Cli, status: QueueStatus & { readonly shape: EffectiveShape }): string {
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
export function historyTable(cli: Cli, history: readonly HistoryEntry[]): string {
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
