import { VERSION } from '../version.ts'
import {
  type BullmqScript,
  type BullmqScripts,
  bullmqModule,
  CLOCKED,
  captureBullmqScripts,
  checkBullmqScripts,
  EXTENDING,
  keysOf,
  notingReleases,
  onDelayClock,
} from './bullmq-scripts.ts'
import type { Command } from './commands.ts'
import { type DefiningClient, defineScript, type FunctionsOption, type Library, useFunctions } from './functions.ts'
import { namedLibrary, UNNAMED } from './libraries.ts'
import { type LibraryFunction, LuaComposer, ON_CLUSTER } from './lua-composer.ts'
import { readLuaFile } from './lua-files.ts'

type ScriptDefinition = Pick<BullmqScript, 'lua' | 'numberOfKeys'>

/** Our scripts with one key, by file. */
const WITH_ONE_KEY = [
  ...['add', 'add-bulk', 'exchange', 'claim-places', 'find-new', 'give-back', 'settle-cost', 'apply-feedback'],
  ...['declare-shape', 'override-shape', 'restore-shape', 'pause-meter', 'set-group', 'set-limit', 'note-history'],
  ...['report', 'shed', 'charge-limit'],
  ...['view', 'caller-secret'],
  ...['drain-part', 'remove-failed', 'cancel-job', 'cancel-part', 'retry-failed'],
  ...['apply-lease', 'grant-leases', 'claim-shards'],
]
/** Scripts with a second key, of the queue of dead letters. */
const WITH_TWO_KEYS = ['dead-letter', 'dead-letter-failed', 'redrive']

/**
 * All other scripts of BullMQ that change where jobs wait or run, or delete jobs. In a queue with groups the jobs enter
 * and leave the lines of their groups (`lua/groups/hooks.lua`). A test finds them by their commands.
 */
const GROUPED: ReadonlySet<string> = new Set([
  ...['changeDelay', 'changePriority', 'cleanJobsInSet', 'obliterate', 'promote', 'reprocessJob', 'retryJob'],
  ...['moveJobFromActiveToWait', 'moveJobsToWait', 'moveStalledJobsToWait', 'moveToWaitingChildren'],
  ...['removeChildDependency', 'removeJob', 'removeOrphanedJobs', 'removeUnprocessedChildren'],
  ...['removeJobScheduler', 'updateJobScheduler'],
])

/** Whether we only prepare a script of BullMQ, which then runs unchanged. */
export function isPrepared(script: string): boolean {
  return script in CLOCKED || script in EXTENDING || GROUPED.has(script)
}

/**
 * Our scripts that Redis runs when its memory is full: they end, start, hold back, give back or remove jobs. Otherwise
 * nothing would ever depart, and scripts that add jobs would use up any freed memory. All prepared scripts of BullMQ
 * run as well.
 */
const RUN_WHEN_FULL: ReadonlySet<string> = new Set([
  ...['exchange', 'give-back', 'dead-letter', 'pause-meter', 'set-group', 'set-limit'],
  ...['apply-feedback', 'drain-part', 'remove-failed', 'cancel-job', 'cancel-part', 'shed'],
  // Without these no program starts, and no shard of a queue continues; they seldom write, or little.
  ...['declare-shape', 'restore-shape', 'claim-shards', 'caller-secret', 'apply-lease', 'grant-leases'],
])

/** Our scripts that write nothing: they run where Redis takes no writes. */
const READING: ReadonlySet<string> = new Set(['view', 'find-new'])

/**
 * The scripts of sluice/limits. Each call gives its number of keys. Where Redis takes no writes, they are sent as
 * texts: a peek, or a refused take, writes nothing.
 */
export const LIMIT_SCRIPTS = [
  'decide',
  'define-limit',
  'set-limit-mode',
  'settle-limit',
  'block-key',
  'reset-key',
  'reserve',
  'cancel-reservation',
  'extend-lease',
  'release-lease',
] as const
export type LimitScript = (typeof LIMIT_SCRIPTS)[number]
const LIMITS: ReadonlySet<string> = new Set(LIMIT_SCRIPTS)

/** Begins each text on a cluster. */
const WITHOUT_ABSENT_KEY = 'KEYS[#KEYS] = nil '

/** BullMQ's script that puts a job back for its next attempt, which must happen only once. */
const RETRY = 'retryJob'
/** For a job of a group, the priority applies within its group. */
const CHANGE_PRIORITY = 'changePriority'

/** The queues of a flow are its keys, so this script is defined once for each number of queues. */
const ADD_FLOW = 'add-flow'

/**
 * Scripts that may come too late when resent: they would add a job that has run and been removed meanwhile, count a
 * forgotten call again, or undo a later change.
 */
const SENT_ONCE = new Set([
  ...['add', 'add-bulk', ADD_FLOW],
  ...['apply-feedback', 'report', 'override-shape', 'pause-meter', 'set-group', 'set-limit', 'note-history'],
])

/** A script before it is composed. */
interface Script extends Omit<LibraryFunction, 'name'> {
  /** Default: each call says it. */
  readonly numberOfKeys?: number
}

/** All scripts for one pair of versions, ready to define on a client. Texts are static: no queue name, no rate. */
export class ScriptSet {
  readonly #scripts = new Map<string, Script>()
  readonly #suffix: string
  readonly #commands = new Map<string, Command>()
  readonly #texts = new Map<string, string>()
  readonly #bullmq: BullmqScripts
  readonly #composer: LuaComposer
  #library: Library | undefined

  constructor(bullmq: BullmqScripts, ownVersion: string, readLua: (file: string) => string = readLuaFile) {
    this.#bullmq = bullmq
    this.#suffix = `${ownVersion}:${bullmq.version}`
    this.#composer = new LuaComposer(moduleReader(bullmq, readLua))
    const verb = (name: string) => ({ text: readLua(`verbs/${name}`), flags: flagsOf(name) })
    for (const name of WITH_ONE_KEY) this.#scripts.set(name, { ...verb(name), numberOfKeys: 1 })
    for (const name of WITH_TWO_KEYS) this.#scripts.set(name, { ...verb(name), numberOfKeys: 2 })
    for (const [name, { numberOfKeys }] of bullmq.scripts) {
      if (!isPrepared(name)) continue
      this.#scripts.set(name, { text: prepared(name), flags: [...FLAGS, RUNS_WHEN_FULL], numberOfKeys })
    }
    for (const name of [ADD_FLOW, ...LIMIT_SCRIPTS]) this.#scripts.set(name, verb(name))
  }

  /** A script's command on a client. Its name has both versions: clients may be shared with others of either package. */
  command(name: string): Command {
    const known = this.#commands.get(name)
    if (known !== undefined) return known
    const { numberOfKeys = 0 } = this.#scripts.get(name) ?? (this.#bullmq.scripts.get(name) as ScriptDefinition)
    return this.#named(name, numberOfKeys)
  }

  #named(name: string, keys: number): Command {
    // Cached: a new string would be rehashed on every property lookup.
    const command = { name: `sluice:${this.#suffix}:${name}`, keys }
    this.#commands.set(name, command)
    return command
  }

  /** Defines every script that a client does not have yet; on a cluster, also those of BullMQ that ours leave alone. */
  define(client: DefiningClient, functions: FunctionsOption = 'auto'): void {
    useFunctions(client, functions)
    for (const [name, { numberOfKeys }] of this.#scripts) {
      if (numberOfKeys !== undefined) this.#defineOnce(client, this.command(name).name, name, numberOfKeys)
    }
    if (!client.isCluster) return
    for (const [name, { lua, numberOfKeys }] of this.#bullmq.scripts) {
      const command = this.command(name).name
      if (!(command in client)) {
        client.defineCommand(command, { lua: `${WITHOUT_ABSENT_KEY}${lua}`, numberOfKeys: numberOfKeys + 1 })
      }
    }
  }

  /** The command that adds a flow over this many queues, defined on first use. */
  addFlowCommand(client: DefiningClient, queues: number): Command {
    const command = this.#named(`${ADD_FLOW}-${queues}`, queues)
    this.#defineOnce(client, command.name, ADD_FLOW, queues)
    return command
  }

  /** Defines the scripts of sluice/limits on a client of ioredis. @returns the names of their commands */
  defineLimits(client: DefiningClient): ReadonlyMap<LimitScript, string> {
    const names = LIMIT_SCRIPTS.map((script) => [script, this.command(script).name] as const)
    for (const [script, name] of names) this.#defineOnce(client, name, script)
    return new Map(names)
  }

  /**
   * Defines the script of simulations on a client. Always as a text: a simulation has its own clock, which all modules
   * of a library would keep. @returns the name of its command
   */
  defineSimulation(client: DefiningClient): string {
    const { name } = this.#named('simulate', 1)
    if (!(name in client)) client.defineCommand(name, { lua: this.#composer.file('verbs/simulate'), numberOfKeys: 1 })
    return name
  }

  /** The text of every script, by name. */
  texts(): ReadonlyMap<string, string> {
    return new Map([...this.#scripts.keys()].map((name) => [name, this.#textOf(name)]))
  }

  /** The text of a script as sent where functions may not be loaded. */
  textSent(name: string, isCluster = false): string {
    const isRunWhenFull = this.#scripts.get(name)?.flags.includes(RUNS_WHEN_FULL)
    return `${isCluster ? WITHOUT_ABSENT_KEY : ''}${isRunWhenFull ? FIRST_WRITE : ''}${this.#textOf(name)}`
  }

  /** The name of a script among the functions of {@link library}. */
  functionOf(name: string): string {
    return functionName(this.library.name, name)
  }

  /** All scripts as Redis Functions. */
  get library(): Library {
    this.#library ??= this.#composeLibrary()
    return this.#library
  }

  #composeLibrary(): Library {
    const functions = [...this.#scripts].map(([script, { text, flags }]) => {
      return { name: functionName(UNNAMED, script), text, flags }
    })
    return namedLibrary(this.#composer.library(UNNAMED, functions))
  }

  #textOf(name: string): string {
    const known = this.#texts.get(name)
    if (known !== undefined) return known
    const text = this.#composer.text((this.#scripts.get(name) as Script).text)
    this.#texts.set(name, text)
    return text
  }

  #defineOnce(client: DefiningClient, name: string, script: string, keys?: number): void {
    if (name in client) return
    const { isCluster = false } = client
    defineScript(client, {
      name,
      numberOfKeys: keys !== undefined && isCluster ? keys + 1 : keys,
      library: () => this.library,
      functionName: () => `${this.functionOf(script)}${isCluster ? ON_CLUSTER : ''}`,
      text: () => this.textSent(script, isCluster),
      isSentOnce: SENT_ONCE.has(script),
      isTriedAsText: LIMITS.has(script),
    })
  }
}

/** As in texts: parents and dead letters may be in queues with other hash slots, on the same node. */
const FLAGS = ['allow-cross-slot-keys']
const RUNS_WHEN_FULL = 'allow-oom'
/**
 * A full Redis refuses the first command of a text that may need memory, but none after a first write. (It takes flags from
 * the first line of a text too, but the emulator does not.)
 */
const FIRST_WRITE = "redis.call('DEL', KEYS[1] .. ':absent') "

function flagsOf(name: string): readonly string[] {
  if (READING.has(name)) return [...FLAGS, 'no-writes']
  return RUN_WHEN_FULL.has(name) ? [...FLAGS, RUNS_WHEN_FULL] : FLAGS
}

function functionName(library: string, script: string): string {
  return `${library}_${script.replaceAll('-', '_')}`
}

/**
 * The reader of a {@link LuaComposer}: files of `lua/`, and the scripts of BullMQ, which may use modules themselves.
 */
function moduleReader({ scripts }: BullmqScripts, readLua: (file: string) => string): (path: string) => string {
  return (path) => {
    const [, name] = path.split('bullmq/')
    if (name === undefined) return readLua(path)
    return bullmqModule(notingReleases(onDelayClock((scripts.get(name) as ScriptDefinition).lua)), keysOf(name))
  }
}

/** A script of BullMQ with our code before and after it. */
function prepared(name: string): string {
  const extending = EXTENDING[name]
  const base = `string.sub(KEYS[${extending?.stalled}], 1, -8)`
  return [
    extending ? `use 'limits/queue-limits'.keep_places(${base}, ${extending.ids}, ARGV[${extending.duration}])` : '',
    GROUPED.has(name) ? grouped(name) : `return use 'bullmq/${name}'.run(redis, KEYS, ARGV)`,
  ].join('\n')
}

function grouped(name: string): string {
  const known = name === CHANGE_PRIORITY ? `, use 'groups/hooks'.priority(ARGV)` : ''
  const reply = name === RETRY ? `use 'ends/finished'.retried(ARGV[1], ARGV[4], ARGV[2], reply)` : 'reply'
  return [
    `local reply = use 'groups/hooks'.run(use 'bullmq/${name}', redis, KEYS, ARGV${known})`,
    `return ${reply}`,
  ].join('\n')
}

let installed: ScriptSet | undefined

/**
 * The scripts for the installed BullMQ, read and checked once per process.
 * @throws UnsupportedVersionError
 */
export function installedScripts(): ScriptSet {
  if (!installed) {
    const bullmq = captureBullmqScripts()
    const warning = checkBullmqScripts(bullmq)
    if (warning) process.emitWarning(warning, { code: 'SLUICE_UNTESTED_BULLMQ' })
    installed = new ScriptSet(bullmq, VERSION)
  }
  return installed
}
