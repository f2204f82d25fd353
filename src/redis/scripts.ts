import {
  ADDS,
  type BullmqScripts,
  bullmqModule,
  CLOCKED,
  EXTENDING,
  keysOfAdd,
  keysOfEnd,
  notingReleases,
  onDelayClock,
} from './bullmq-scripts.ts'
import type { Command } from './commands.ts'
import { LuaComposer } from './lua-composer.ts'
import { readLuaFile } from './lua-files.ts'
import { sendOnce } from './resends.ts'
import { SharedScripts } from './shared-scripts.ts'

/** A script as BullMQ's client takes it. */
export interface ScriptDefinition {
  readonly lua: string
  readonly numberOfKeys: number
}

interface DefiningClient {
  readonly isCluster?: boolean
  defineCommand(name: string, definition: ScriptDefinition): void
}

/** Our standalone scripts, by file, with their number of keys. */
const OWN: Readonly<Record<string, number>> = {
  add: 1,
  'add-bulk': 1,
  'finish-batch': 12,
  'finish-batch-open': 12,
  'finish-batch-groups': 12,
  'claim-places': 1,
  'find-new': 1,
  'drain-part': 1,
  'dead-letter': 24,
  'declare-shape': 1,
  'override-shape': 1,
  'pause-meter': 1,
  'restore-shape': 1,
  'give-back': 1,
  'note-history': 1,
  'read-group': 1,
  'read-meter': 1,
  'bury-failed': 10,
  redrive: 14,
  'remove-failed': 1,
  'retry-failed': 1,
  report: 1,
  shed: 1,
  'set-group': 1,
  'settle-cost': 1,
  'apply-feedback': 1,
  'locate-job': 1,
  'remove-waiting': 1,
  'caller-secret': 1,
  'apply-lease': 1,
  'grant-leases': 1,
  'claim-shards': 1,
}

/** BullMQ's scripts that run inside ours. Ours take one more key. */
export const WRAPPED: Readonly<Record<string, string>> = {
  moveToActive: 'depart',
  moveToFinished: 'finish',
  moveToDelayed: 'postpone',
}

/** Names of the short scripts around BullMQ's moveToFinished, which leave all but simple cases to the full one. */
export const FINISH_ONLY = 'moveToFinished-only'
export const FINISH_OPEN = 'moveToFinished-open'

/** The files of the short scripts that end jobs. */
export const SHORT: Readonly<Record<string, string>> = {
  [FINISH_ONLY]: 'finish-only',
  [FINISH_OPEN]: 'finish-open',
}

/**
 * BullMQ's scripts that Redis must not refuse when out of memory, and the index of the set of stalled jobs among their
 * keys: like `lua/redis/begin-unrefused.lua`, they begin with a write that changes nothing.
 */
const UNREFUSED: Readonly<Record<string, number>> = {
  extendLock: 2,
  extendLocks: 1,
  moveStalledJobsToWait: 1,
}

/**
 * All other scripts of BullMQ that change where jobs wait or run, or delete jobs: in a queue with groups the jobs enter and
 * leave the lines of their groups (`lua/groups/hooks.lua`). A test finds them by their commands.
 */
const GROUPED: ReadonlySet<string> = new Set([
  'changeDelay',
  'changePriority',
  'cleanJobsInSet',
  'moveJobFromActiveToWait',
  'moveJobsToWait',
  'moveStalledJobsToWait',
  'moveToWaitingChildren',
  'obliterate',
  'promote',
  'removeChildDependency',
  'removeJob',
  'removeJobScheduler',
  'removeOrphanedJobs',
  'removeUnprocessedChildren',
  'reprocessJob',
  'retryJob',
  'updateJobScheduler',
])

/** Whether a script of BullMQ is sent in a form of ours that does no more than prepare it. */
export function isPrepared(script: string): boolean {
  return script in CLOCKED || script in UNREFUSED || GROUPED.has(script)
}

/** Nor must it refuse the next job of a scheduler, stored when the current one begins. KEYS[5] is BullMQ's `meta`. */
const NEXT_ITERATION = { script: 'updateJobScheduler', begin: "redis.call('HDEL', KEYS[5], '')" }

/** The scripts of sluice/limits. Each call gives its number of keys. */
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

/** The module in a file around several scripts of BullMQ: each in turn. */
const AROUND = 'bullmq/original'

/** Begins each script on a cluster. */
export const WITHOUT_ABSENT_KEY = 'KEYS[#KEYS] = nil '

/** Modules that BullMQ's scripts use: by what `bullmq-scripts.ts` puts into them, and by what prepares them here. */
const MODULES: Readonly<Record<string, string>> = {
  delay_clock: 'redis/delay-clock',
  group_hooks: 'groups/hooks',
  group_priority: 'groups/priority',
  keep_places: 'limits/keep-places',
  retried: 'ends/retried',
  touched: 'gate/touched',
}
/** BullMQ's script that puts a job back for its next attempt, and is to do so once. */
const RETRY = 'retryJob'
/** For a job of a group, the priority is that within its group. */
const CHANGE_PRIORITY = 'changePriority'

/** The queues of a flow are its keys, so this script is defined once for each number of queues. */
const ADMIT_FLOW = 'admit-flow'

/**
 * Scripts that may come too late if they are sent again: they would add a job that has run and been removed meanwhile,
 * count what was forgotten, or undo a later change.
 */
const SENT_ONCE = new Set([
  ...['add', 'add-bulk'],
  ...['apply-feedback', 'report', 'override-shape', 'pause-meter', 'set-group', 'note-history'],
])

/** All scripts for one pair of versions, ready to be defined on a client. Texts are static: no queue name, no rate. */
export class ScriptSet {
  readonly #definitions = new Map<string, ScriptDefinition>()
  readonly #admitFlow: string
  readonly #suffix: string
  readonly #commands = new Map<string, Command>()
  readonly #shared = new SharedScripts()
  readonly #bullmq: BullmqScripts

  constructor(bullmq: BullmqScripts, ownVersion: string, readLua: (file: string) => string = readLuaFile) {
    this.#bullmq = bullmq
    this.#suffix = `${ownVersion}:${bullmq.version}`
    const composer = new LuaComposer(moduleReader(bullmq, readLua))
    const compose = (file: string, around = '') => {
      const text = readLua(`verbs/${file}`).replace(AROUND, `bullmq/${around}`)
      return composer.text(text)
    }
    for (const [file, numberOfKeys] of Object.entries(OWN))
      this.#definitions.set(file, { lua: compose(file), numberOfKeys })
    for (const [name, file] of Object.entries(WRAPPED)) {
      const { numberOfKeys } = bullmq.scripts.get(name) as ScriptDefinition
      this.#definitions.set(name, { lua: compose(file, name), numberOfKeys: numberOfKeys + 1 })
    }
    for (const [short, file] of Object.entries(SHORT))
      this.#definitions.set(short, { lua: compose(file), numberOfKeys: 1 })
    for (const [name, { numberOfKeys }] of bullmq.scripts) {
      if (isPrepared(name)) this.#definitions.set(name, { lua: composer.text(prepared(name)), numberOfKeys })
    }
    this.#admitFlow = compose(ADMIT_FLOW)
  }

  /** A script's command on a client. Its name has both versions: clients may be shared with others of either package. */
  command(name: string): Command {
    const known = this.#commands.get(name)
    if (known !== undefined) return known
    const { numberOfKeys } = (this.#definitions.get(name) ?? this.#bullmq.scripts.get(name)) as ScriptDefinition
    return this.#named(name, numberOfKeys)
  }

  #named(name: string, keys: number): Command {
    // Cached: a new string would be rehashed on every property lookup.
    const command = { name: `sluice:${this.#suffix}:${name}`, keys }
    this.#commands.set(name, command)
    return command
  }

  /** Defines every script that a client does not have yet; on a cluster, also those of BullMQ that ours leave alone. */
  define(client: DefiningClient): void {
    const others = client.isCluster ? this.#bullmq.scripts : []
    for (const [name, definition] of new Map([...others, ...this.#definitions])) {
      this.#defineOnce(client, this.command(name), definition, SENT_ONCE.has(name))
    }
  }

  /** The command that adds a flow over this many queues, defined on first use. */
  admitFlowCommand(client: DefiningClient, queues: number): Command {
    const command = this.#named(`${ADMIT_FLOW}-${queues}`, queues)
    this.#defineOnce(client, command, { lua: this.#admitFlow, numberOfKeys: queues }, true)
    return command
  }

  /** Number of keys of a BullMQ script. */
  originalKeys(name: string): number {
    return (this.#bullmq.scripts.get(name) as ScriptDefinition).numberOfKeys
  }

  /** Every definition with a fixed number of keys, for tests. */
  definitions(): ReadonlyMap<string, ScriptDefinition> {
    return this.#definitions
  }

  admitFlowText(): string {
    return this.#admitFlow
  }

  #defineOnce(client: DefiningClient, { name }: Command, definition: ScriptDefinition, isSentOnce: boolean): void {
    if (name in client || this.#shared.take(client, name)) return
    client.defineCommand(name, client.isCluster ? onCluster(definition) : definition)
    if (isSentOnce) sendOnce(client, name)
    this.#shared.keep(client, name)
  }
}

/** The cluster variant of a script: takes one extra key (`absentKey`), which it drops before the body runs. */
function onCluster({ lua, numberOfKeys }: ScriptDefinition): ScriptDefinition {
  return { lua: `${WITHOUT_ABSENT_KEY}${lua}`, numberOfKeys: numberOfKeys + 1 }
}

/** What a {@link LuaComposer} reads: files of `lua/`, and the scripts of BullMQ, which may use modules themselves. */
export function moduleReader({ scripts }: BullmqScripts, readLua = readLuaFile): (path: string) => string {
  return (path) => {
    const [, name] = path.split('bullmq/')
    return name === undefined ? readLua(path) : moduleOf((scripts.get(name) as ScriptDefinition).lua, name)
  }
}

function moduleOf(lua: string, name: string): string {
  const keys = name === 'moveToFinished' ? keysOfEnd() : ADDS.includes(name) ? keysOfAdd(name) : undefined
  return using(bullmqModule(notingReleases(onDelayClock(lua)), keys))
}

/** A script of BullMQ with what it needs before and after it. */
function prepared(name: string): string {
  const extending = EXTENDING[name]
  const first = name in UNREFUSED ? `redis.call('SREM', KEYS[${UNREFUSED[name]}], '')` : ''
  const lines = [
    name === NEXT_ITERATION.script ? NEXT_ITERATION.begin : first,
    extending ? `keep_places(string.sub(KEYS[${UNREFUSED[name]}], 1, -8), ARGV[${extending.duration}])` : '',
    GROUPED.has(name) ? grouped(name) : 'return original.run(redis, KEYS, ARGV)',
  ]
  return using([`local original = use 'bullmq/${name}'`, ...lines].join('\n'))
}

const COMMENTS = /--\[\[[\s\S]*?\]\]|--.*$/gm

/** A text that may name one of `MODULES`. */
function using(text: string): string {
  const code = text.replaceAll(COMMENTS, '')
  const named = Object.entries(MODULES).filter(([name]) => new RegExp(`(?<![\\w.])${name}\\b`).test(code))
  return [...named.map(([name, path]) => `local ${name} = use '${path}'`), text].join('\n')
}

function grouped(name: string): string {
  const known = name === CHANGE_PRIORITY ? ', group_priority(ARGV)' : ''
  const reply = name === RETRY ? 'retried(ARGV[1], ARGV[4], ARGV[5], reply)' : 'reply'
  return [
    `local hooked, store_groups = group_hooks.redis(redis${known})`,
    'local reply = original.run(hooked, KEYS, ARGV)',
    'store_groups()',
    `return ${reply}`,
  ].join('\n')
}

/** The scripts of sluice/limits use the same modules. */
const limitComposer = new LuaComposer(readLuaFile)

/** The full text of a script of sluice/limits. */
export function limitScript(name: (typeof LIMIT_SCRIPTS)[number]): string {
  return limitComposer.file(`verbs/${name}`)
}
