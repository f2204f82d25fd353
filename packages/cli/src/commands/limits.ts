import type { Command } from 'commander'
import { type Block, countText, formatDuration, ONE_FOR_ALL, plainText, type StoredLimit } from 'sluice/internal'
import { blockedKeys, limiterOf, limitNames, storedLimit } from 'sluice/internal/bullmq'
import type { LimitAnswer, LimitKey } from 'sluice/limits'
import { durationOption, parseNonEmpty } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'
import { numberText } from '../queue-text.ts'
import { shortId } from '../short-ids.ts'

export const addCommand: AddCommand = (program, run) => {
  const limits = program
    .command('limits')
    .description('Shows limiters and shared limits of queues; resets and blocks single keys.')
  addList(limits, run)
  addShow(limits, run)
  addReset(limits, run)
  addBlock(limits, run)
}

interface LimitOptions {
  readonly limitsPrefix: string
  readonly tier?: string
  readonly keyless?: boolean
}

function addPrefix(command: Command): Command {
  return command.option('--limits-prefix <text>', 'prefix of the limits', parseNonEmpty, 'sluice')
}

/** Adds the arguments and options of commands about keys of a limit. */
function addKey(command: Command): Command {
  return addPrefix(command)
    .argument('<limit>', 'the name of the limit', parseNonEmpty)
    .argument('[key...]', 'the key, in one or several words')
    .option('--keyless', 'the state shared by calls without a key')
    .option('--tier <name>', 'the tier of the key', parseNonEmpty)
}

function addList(limits: Command, run: Runner): void {
  addPrefix(limits.command('list'))
    .description('Lists the declared limits. It scans the whole keyspace.')
    .action(run(list))
}

function addShow(limits: Command, run: Runner): void {
  addKey(limits.command('show'))
    .description('Shows what a limit allows and which keys are blocked; for a key, what it has left.')
    .addHelpText(
      'after',
      '\nExamples:\n  $ sluice limits show logins\n  $ sluice limits show logins 203.0.113.7 alice\n',
    )
    .action(run(show))
}

function addReset(limits: Command, run: Runner): void {
  addKey(limits.command('reset')).description('Forgets what a key has used, and ends its block.').action(run(reset))
}

function addBlock(limits: Command, run: Runner): void {
  const option = durationOption('--for <duration>', 'how long (required)').makeOptionMandatory()
  addKey(limits.command('block'))
    .description("Refuses a key for a while. It never shortens an earlier block; 'limits reset' ends one.")
    .addOption(option)
    .action(run(block))
}

async function list(cli: Cli, { limitsPrefix }: LimitOptions): Promise<void> {
  const client = await cli.client()
  const names = await limitNames(client, limitsPrefix)
  const found = await Promise.all(names.map((name) => storedLimit(client, name, limitsPrefix)))
  const limits = found.filter((limit) => limit !== undefined)
  cli.print({ limits }, () => {
    if (limits.length === 0) return `no limits under prefix "${plainText(limitsPrefix)}"`
    const rows = limits.map((limit) => [limit.name, allowedText(limit), modeText(limit), plainText(limit.by ?? '—')])
    return cli.table(['limit', 'allows', 'mode', 'declared by'], rows)
  })
}

async function show(cli: Cli, name: string, words: readonly string[], options: LimitOptions): Promise<void> {
  const limit = await existingLimit(cli, name, options)
  const client = await cli.client()
  const { limitsPrefix: prefix, tier } = options
  if (words.length === 0 && !options.keyless) {
    const blocked = await blockedKeys(client, limit, prefix)
    return cli.print({ ...limit, blocked }, () => limitText(cli, limit, blocked))
  }
  const { key, text, said } = keyOf(words, options)
  const answer = await limiterOf(client, limit, { prefix, tier }).peek(key)
  cli.print({ ...said, ...answer }, () => answerText(cli, text, answer))
}

async function reset(cli: Cli, name: string, words: readonly string[], options: LimitOptions): Promise<void> {
  const limit = await existingLimit(cli, name, options)
  const { limitsPrefix: prefix, tier } = options
  const { key, text, said } = keyOf(words, options)
  await limiterOf(await cli.client(), limit, { prefix, tier }).reset(key)
  cli.print({ limit: name, ...said, reset: true }, () => `${name}: ${text} is reset`)
}

interface BlockOptions extends LimitOptions {
  readonly for: number
}

async function block(cli: Cli, name: string, words: readonly string[], options: BlockOptions): Promise<void> {
  const limit = await existingLimit(cli, name, options)
  const { limitsPrefix: prefix, tier, for: ms } = options
  const { key, text, said } = keyOf(words, options)
  await limiterOf(await cli.client(), limit, { prefix, tier }).block(key, ms)
  cli.print({ limit: name, ...said, blockedMs: ms }, () => `${name}: ${text} is blocked for ${formatDuration(ms)}`)
}

/** @throws CommandError; a mistyped name must not declare a limit */
async function existingLimit(cli: Cli, name: string, { limitsPrefix }: LimitOptions): Promise<StoredLimit> {
  const limit = await storedLimit(await cli.client(), name, limitsPrefix)
  if (limit) return limit
  const where = `under prefix "${plainText(limitsPrefix)}"`
  throw new CommandError(
    EXIT_CODES.notFound,
    `no limit "${plainText(name)}" ${where}: sluice limits list shows them, sluice key list QUEUE those of a queue by keys`,
  )
}

interface GivenKey {
  readonly key: LimitKey
  readonly text: string
  /** In JSON: the state of calls without a key has none. */
  readonly said: { readonly key?: LimitKey }
}

/** @throws CommandError */
function keyOf(words: readonly string[], { keyless = false }: LimitOptions): GivenKey {
  if (keyless !== (words.length === 0)) {
    throw new CommandError(EXIT_CODES.usage, `expected a key or --keyless; got ${keyless ? 'both' : 'neither'}`)
  }
  if (keyless) return { key: ONE_FOR_ALL, text: KEYLESS, said: {} }
  const key = words.length === 1 ? (words[0] as string) : words
  return { key, text: words.map(plainText).join(' '), said: { key } }
}

const KEYLESS = '(no key)'

function allowedText({ definition }: StoredLimit): string {
  const { algorithm, rate, concurrency, tiers } = definition
  const most = rate ?? `${concurrency} at once`
  const tiersText = tiers === undefined ? '' : `, ${countText(Object.keys(tiers).length, 'tier')}`
  return plainText(`${most} (${algorithm})${tiersText}`)
}

function modeText({ mode }: StoredLimit): string {
  return mode ?? 'as declared'
}

function limitText(cli: Cli, limit: StoredLimit, blocked: readonly Block[]): string {
  const fields = Object.entries(limit.definition).map(([field, value]) => [
    plainText(field),
    plainText(typeof value === 'string' ? value : JSON.stringify(value)),
  ])
  const rows = [
    ...fields,
    ['version', limit.version === undefined ? '—' : `${limit.version}`],
    ['mode', modeText(limit)],
    ['declared by', plainText(limit.by ?? '—')],
  ]
  const parts = [cli.colors.bold(limit.name), cli.table([], rows)]
  if (blocked.length === 0) return parts.join('\n')
  const blocks = blocked.map(({ key, until }) => [shortId(key), until.toISOString()])
  return [...parts, '', cli.table(['blocked key', 'until'], blocks)].join('\n')
}

function answerText(cli: Cli, key: string, answer: LimitAnswer): string {
  const { allowed, remaining, limit, retryAfterMs, resetAt } = answer
  return cli.table(
    [],
    [
      ['key', key],
      ['one unit now', allowed ? 'allowed' : `refused, retry in ${formatDuration(retryAfterMs)}`],
      ['left', `${numberText(remaining)} of ${numberText(limit)}`],
      ['all again', resetAt.toISOString()],
    ],
  )
}
