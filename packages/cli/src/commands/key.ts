import type { Command } from 'commander'
import type { LimitState, LimitValueKey, ShapedQueue, ShapeValue } from 'sluice'
import { countText, formatDuration, formatValue, keysText, plainText } from 'sluice/internal'
import { addReason, durationOption, parseNonEmpty, parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'
import { existingParts, existingQueue, existingQueueOfGroup } from '../existing-queue.ts'
import { lastsText, overrideTexts } from '../queue-text.ts'
import { readRate } from '../shape-fields.ts'

export const addCommand: AddCommand = (program, run) => {
  const key = program
    .command('key')
    .description('Shows and changes what limits allow single values of their keys, or members of pools.')
  addList(key, run)
  addShow(key, run)
  addSet(key, run)
  addClear(key, run)
}

function keyCommand(key: Command, name: string, description: string): Command {
  return key
    .command(name)
    .description(description)
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('<limit>', 'the name of the limit', parseNonEmpty)
    .argument('<key...>', 'the value, or a member of a pool; for several keys: name=value for each')
}

function addList(key: Command, run: Runner): void {
  key
    .command('list')
    .description('Lists key values with their own settings.')
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('[limit]', 'only those of this limit', parseNonEmpty)
    .option('--count <values>', 'show at most this many', wholeNumber(1, 10_000), 100)
    .action(run(list))
}

function addShow(key: Command, run: Runner): void {
  keyCommand(key, 'show', "Shows a key value's allowance, what is left and until when, and its overrides.").action(
    run(show),
  )
}

function addSet(key: Command, run: Runner): void {
  const command = keyCommand(
    key,
    'set',
    "Overrides what the shape allows a value, until --for expires or 'key clear' runs.",
  )
    .option('--rate <rate>', "its rate: '100/min', or a schedule as JSON or @file; 'none' for no limit", readRate)
    .option('--burst <units>', 'for a bucket: units that may pass back to back', Number)
    .option('--concurrency <jobs>', 'its jobs that may run at once', Number)
    .option('--tier <name>', 'one of the tiers of the limit')
    .option('--day <day>', 'for a warm-up plan: the day to continue with', wholeNumber(1, 10_000))
    .option('--held', 'for a pool: let nothing more depart with this member; for a warm-up plan: hold its day')
    .addOption(durationOption('--for <duration>', 'for how long (default: until cleared)'))
    .addHelpText(
      'after',
      "\nExamples:\n  $ sluice key set chats tpm gpt-large --rate 900000/min --reason 'tier 4'\n" +
        '  $ sluice key set chats calls group=acme host=api.example.com --rate 20/s \\\n' +
        "      --for 1h --reason 'a backfill'\n",
    )
  addReason(command).action(run(set))
}

function addClear(key: Command, run: Runner): void {
  const command = keyCommand(key, 'clear', 'Ends overrides of a value: the shape applies again.').option(
    '--field <fields...>',
    'fields such as rate (default: all)',
  )
  addReason(command).action(run(clear))
}

async function list(cli: Cli, name: string, limit: string | undefined, { count }: { readonly count: number }) {
  await existingParts(cli, name)
  const all = (await cli.inspector().limitSettings(name)).filter((one) => limit === undefined || one.limit === limit)
  const values = all.slice(0, count)
  cli.print({ queue: name, count: all.length, values }, () => {
    if (all.length === 0) return `nothing is set for values of the limits of ${name}`
    const rows = values.flatMap(({ limit: of, keys, overrides }) =>
      Object.entries(overrides).map(([field, { value, by, reason, until }]) => [
        ...[of, plainText(keysText(keys)), field, valueText(value), until?.toISOString() ?? ''],
        ...[plainText(by), plainText(reason)],
      ]),
    )
    const left = all.length - values.length
    const table = cli.table(['limit', 'key', 'field', 'value', 'until', 'by', 'reason'], rows)
    return left > 0 ? `${table}\nand ${left} more: --count` : table
  })
}

async function show(cli: Cli, name: string, limit: string, words: readonly string[]): Promise<void> {
  const [queue, key] = await queueAndKey(cli, name, words)
  const state = await queue.getLimit(limit, key)
  cli.print({ queue: name, ...state }, () => stateText(cli, name, state))
}

function stateText(cli: Cli, name: string, state: LimitState): string {
  const { limit, keys, inForce, overrides, day, days, waitingLanes } = state
  const rows = Object.entries(inForce).map(([field, value]) => [
    ...[field, valueText(value), overrides[field] ? 'set' : overrides.tier ? 'tier' : 'shape'],
  ])
  return [
    `limit ${limit} of ${name}, ${plainText(keysText(keys))}: ${leftText(state)}`,
    ...(day === undefined ? [] : [`day ${day} of ${days} of its plan`]),
    ...(waitingLanes > 0 ? [`${countText(waitingLanes, 'lane')} wait${waitingLanes === 1 ? 's' : ''} for it`] : []),
    ...(rows.length > 0 ? [cli.table(['field', 'value', 'from'], rows)] : []),
    ...overrideTexts(overrides),
  ].join('\n')
}

function leftText({ overrides, days, remaining, retryAfterMs, resetAt, opensAt }: LimitState): string {
  // A plan that is held goes on at its day.
  if (overrides.held && days === undefined) return 'held'
  if (remaining === undefined) return 'no limit'
  if (opensAt) return `closed by its schedule until ${opensAt.toISOString()}`
  const frees = retryAfterMs === undefined ? 'when a job ends' : `in ${formatDuration(retryAfterMs)}`
  return `${remaining} left, one more ${retryAfterMs === 0 ? 'now' : frees}, all at ${resetAt?.toISOString()}`
}

interface SetOptions {
  readonly rate?: ReturnType<typeof readRate>
  readonly burst?: number
  readonly concurrency?: number
  readonly tier?: string
  readonly day?: number
  readonly held?: true
  readonly reason: string
  readonly for?: number
}

async function set(
  cli: Cli,
  name: string,
  limit: string,
  words: readonly string[],
  options: SetOptions,
): Promise<void> {
  const { reason, for: ttlMs, rate, ...others } = options
  const override = { ...others, ...(rate === undefined ? {} : { rate: rate === 'none' ? null : rate }) }
  if (Object.keys(override).length === 0) {
    throw new CommandError(EXIT_CODES.usage, "expected at least one field and its value, such as '--rate 20/s'")
  }
  const [queue, key] = await queueAndKey(cli, name, words)
  await queue.setLimit(limit, key, override, { by: cli.by, reason, ...(ttlMs === undefined ? {} : { ttlMs }) })
  cli.print({ queue: name, limit, key, set: override, forMs: ttlMs, by: cli.by, reason }, () => {
    return `limit ${limit} of ${name}, ${keyText(key)}: ${Object.keys(override).join(', ')} set ${lastsText(ttlMs)}`
  })
}

interface ClearOptions {
  readonly field?: readonly string[]
  readonly reason: string
}

async function clear(cli: Cli, name: string, limit: string, words: readonly string[], { field, reason }: ClearOptions) {
  const [queue, key] = await queueAndKey(cli, name, words)
  await queue.clearLimit(limit, key, { fields: field as never, by: cli.by, reason })
  cli.print({ queue: name, limit, key, cleared: field ?? 'all', by: cli.by, reason }, () => {
    return `limit ${limit} of ${name}, ${keyText(key)}: ${field?.join(', ') ?? 'all that was set'} cleared`
  })
}

/** The queue, or the shard of the key's group, and the key as `setLimit` takes it. */
async function queueAndKey(cli: Cli, name: string, words: readonly string[]): Promise<[ShapedQueue, LimitValueKey]> {
  const pairs = words.map((word) => /^([A-Za-z0-9_.-]+)=(.+)$/.exec(word))
  const isNamed = words.length > 1 || pairs[0] !== null
  if (!isNamed) return [await existingQueue(cli, name), words[0] as string]
  const wrong = words.find((_, i) => !pairs[i])
  if (wrong !== undefined) {
    throw new CommandError(EXIT_CODES.usage, `expected name=value for each key; got '${plainText(wrong)}'`)
  }
  const keys = Object.fromEntries(pairs.map((pair) => [pair?.[1], pair?.[2]])) as Record<string, string>
  const queue =
    keys.group === undefined ? await existingQueue(cli, name) : await existingQueueOfGroup(cli, name, keys.group)
  return [queue, keys]
}

function keyText(key: LimitValueKey): string {
  return plainText(typeof key === 'object' ? keysText(key as Record<string, string>) : String(key))
}

function valueText(value: unknown): string {
  return value === null ? 'no limit' : plainText(formatValue(value as ShapeValue))
}
