import { hostname, userInfo } from 'node:os'
import { type Command, Option } from 'commander'
import { countText } from 'sluice/internal'
import { CommandError, EXIT_CODES } from './command-error.ts'

export interface GlobalOptions {
  readonly redisUrl: string
  /** A replica to read from; undefined: reads use `redisUrl`. */
  readonly readUrl: string | undefined
  readonly prefix: string
  /** Whether the URLs are those of nodes of a Redis Cluster. */
  readonly cluster: boolean
  readonly json: boolean
  /** False with `--no-color`. */
  readonly color: boolean
  readonly by: string
}

const DEFAULT_URL = 'redis://127.0.0.1:6379'
const DEFAULT_PREFIX = 'bull'
const REDIS_PROTOCOLS = ['redis:', 'rediss:']

/** Adds the global options to the program; they may be given before or after the name of a command. */
export function addGlobalOptions(program: Command): void {
  // Defaults are filled in below: an empty variable counts as unset.
  program
    .addOption(
      new Option('--redis-url <url>', `URL of the Redis that holds the queues (default: ${DEFAULT_URL})`).env(
        'REDIS_URL',
      ),
    )
    .addOption(new Option('--read-url <url>', 'a replica to read from').env('REDIS_READ_URL'))
    .addOption(new Option('--prefix <text>', `key prefix (default: ${DEFAULT_PREFIX})`).env('PREFIX'))
    .addOption(new Option('--cluster', 'the URL names a node of a Redis Cluster').env('REDIS_CLUSTER'))
    .option('--by <name>', 'who makes the change, for the history (default: user@host)')
    .option('--json', 'print JSON')
    .option('--no-color', 'print no colours')
  program.hook('preAction', () => {
    // Commander takes a variable with any text for a flag that was given.
    if (program.getOptionValueSource('cluster') !== 'env') return
    program.setOptionValueWithSource('cluster', isOn(process.env.REDIS_CLUSTER), 'env')
  })
}

/** As in the settings of the programs; an empty text is unset. */
function isOn(text = ''): boolean {
  if (['true', '1'].includes(text)) return true
  if (['', 'false', '0'].includes(text)) return false
  throw usage("REDIS_CLUSTER: expected 'true', 'false', '1' or '0'")
}

/**
 * Reads the options that commander parsed.
 * @throws CommandError; its message never repeats a URL, which may hold a password
 */
export function readGlobalOptions(found: Readonly<Record<string, unknown>>): GlobalOptions {
  const prefix = (found.prefix as string) || DEFAULT_PREFIX
  if (/\p{Cc}/u.test(prefix)) throw usage('--prefix: expected no control characters')
  return {
    redisUrl: checkUrl('--redis-url', (found.redisUrl as string) || DEFAULT_URL),
    readUrl: found.readUrl ? checkUrl('--read-url', found.readUrl as string) : undefined,
    prefix,
    cluster: found.cluster === true,
    json: found.json === true,
    color: found.color !== false,
    by: (found.by as string) || defaultName(),
  }
}

/** The host only: messages must not show the password or the rest of the URL. */
export function hostOf(url: string): string {
  return new URL(url).host
}

function checkUrl(option: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url && REDIS_PROTOCOLS.includes(url.protocol) && url.hostname !== '') return text
  throw usage(
    `${option}: expected a redis:// or rediss:// URL; got another text of ${countText(text.length, 'character')}`,
  )
}

function defaultName(): string {
  try {
    return `${userInfo().username}@${hostname()}`
  } catch {
    // A container may run under a user id without an entry in the user database.
    return `${process.getuid?.() ?? 'unknown'}@${hostname()}`
  }
}

function usage(message: string): CommandError {
  return new CommandError(EXIT_CODES.usage, message)
}
