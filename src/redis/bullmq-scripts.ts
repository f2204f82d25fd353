import { createHash } from 'node:crypto'
import { RedisConnection, RedisQueueBackend } from 'bullmq'
import { UnsupportedVersionError } from '../errors.ts'
import { TESTED_BULLMQ } from './tested-bullmq.ts'

/** A script of BullMQ, as the installed copy defines it. */
export interface BullmqScript {
  readonly lua: string
  readonly numberOfKeys: number
}

export interface BullmqScripts {
  readonly version: string
  readonly scripts: ReadonlyMap<string, BullmqScript>
}

/** The scripts that ours are composed with, and the number of keys that we rely on. */
export const COMPOSED: Readonly<Record<string, number>> = {
  addStandardJob: 9,
  addPrioritizedJob: 9,
  addDelayedJob: 6,
  addParentJob: 6,
  addJobScheduler: 11,
  releaseParentIfNoPendingDependencies: 2,
  moveToActive: 11,
  moveToFinished: 14,
  moveToDelayed: 11,
}

/** Scripts that run unchanged except for the clock of their delays, and their number of keys. */
export const CLOCKED: Readonly<Record<string, number>> = {
  changeDelay: 4,
  retryJob: 11,
  updateJobScheduler: 12,
}

/** A place where a BullMQ script uses the client's time for a delay. */
interface DelayTime {
  readonly line: string
  /** The replacement. */
  readonly instead: string
  /** Scripts that must contain the line. */
  readonly scripts: readonly string[]
}

/** Redis's time, ms, if the queue is shaped. */
const AT = "use 'redis/delay-clock'.at"

const DELAY_TIMES: readonly DelayTime[] = [
  {
    line: 'rcall("ZRANGEBYSCORE", delayedKey, 0, (timestamp + 1) * 0x1000 - 1, "LIMIT", 0, 1000)',
    instead: `use 'redis/delay-clock'.due(delayedKey, timestamp)`,
    scripts: ['moveToActive', 'moveToFinished', 'moveToDelayed', 'retryJob'],
  },
  {
    line: '(delay > 0 and (tonumber(timestamp) + delay)) or tonumber(timestamp)',
    instead: `(delay > 0 and (${AT}(math.ceil, delayedKey, timestamp) + delay)) or ${AT}(math.floor, delayedKey, timestamp)`,
    scripts: [
      'addDelayedJob',
      'addJobScheduler',
      'changeDelay',
      'moveToDelayed',
      'moveToFinished',
      'updateJobScheduler',
    ],
  },
  {
    line: 'local delayedTimestamp = tonumber(timestamp) + delay',
    instead: `local delayedTimestamp = ${AT}(math.ceil, parentQueueKey .. ":delayed", timestamp) + delay`,
    scripts: ['addStandardJob', 'moveToFinished', 'releaseParentIfNoPendingDependencies'],
  },
  {
    line: 'local now = tonumber(ARGV[7])',
    instead: `local now = ${AT}(math.ceil, KEYS[2], ARGV[7])`,
    scripts: ['addJobScheduler'],
  },
  {
    line: 'local timestamp = tonumber(ARGV[5])',
    instead: `local timestamp = ${AT}(math.ceil, KEYS[2], ARGV[5])`,
    scripts: ['updateJobScheduler'],
  },
]

/** A BullMQ script whose delays count on Redis's clock if its queue is shaped. */
export function onDelayClock(lua: string): string {
  return DELAY_TIMES.reduce((text, { line, instead }) => text.replaceAll(line, instead), lua)
}

/** Where a parent enters the wait list of its queue, which may be another one. */
const RELEASED = 'local parentMarkerKey = parentQueueKey .. ":marker"'

/** A BullMQ script that notes the queues into which it released parents. */
export function notingReleases(lua: string): string {
  return lua.replaceAll(RELEASED, `use 'gate/wake'.note(parentQueueKey .. ":") ${RELEASED}`)
}

const FUNCTION = /^local (?:function (\w+)|(\w+) = function) ?\(/
const CALL = 'local rcall = redis.call'
/** A command call by name, like nearly all calls. */
const NAMED_CALL = /\brcall\((\s*)(["'])([A-Z]+)\2/g

/**
 * The module `bullmq/<script>`, a table with `run(redis, KEYS, ARGV)`: its functions are created with the module,
 * because creating them takes as long as several commands. If one of them uses a variable of the rest, they are created
 * in `run`.
 * @param keys expressions of Lua that make the script's keys, without the prefix of the queue: `keys(base, id, target)`
 */
export function bullmqModule(lua: string, keys?: readonly string[]): string {
  const { functions, rest } = divideScript(lua)
  const isDivided = functions !== ''
  return [
    keys ? keysFunction(keys) : '',
    isDivided ? `local rcall, commands\n${byName(functions)}` : '',
    'local function run(redis, KEYS, ARGV)',
    isDivided ? `rcall, commands = redis.call, use 'redis/commands-of'(redis)\n${byName(rest)}` : rest,
    'end',
    `return { run = run${keys ? ', keys = keys' : ''} }`,
  ].join('\n')
}

/** Commands are called by name: lua/redis/commands-of.lua. */
function byName(lua: string): string {
  return lua.replaceAll(NAMED_CALL, 'commands.$3($1$2$3$2')
}

/** Keys are cached for this many queues, for each script. */
const QUEUES_KEPT = 100

/**
 * `keys(base, id, target)` returns the same table at each call: making the names of a queue's keys takes as long as
 * several commands. Each call replaces the keys that differ from job to job.
 */
function keysFunction(keys: readonly string[]): string {
  const isOfQueue = (key: string) => /^'[^']*'$/.test(key)
  const ofJob = [...keys.entries()].filter(([, key]) => !isOfQueue(key))
  return [
    'local kept, count = {}, 0',
    'local function keys(base, id, target)',
    'local all = kept[base]',
    'if not all then',
    `if count == ${QUEUES_KEPT} then kept, count = {}, 0 end`,
    `all, count = { ${keys.map((key) => (isOfQueue(key) ? `base .. ${key}` : 'false')).join(', ')} }, count + 1`,
    'kept[base] = all',
    'end',
    ...ofJob.map(([i, key]) => `all[${i + 1}] = base .. ${key}`),
    'return all',
    'end',
  ].join('\n')
}

/** Divides a script of BullMQ into its functions and the rest, which calls them. */
export function divideScript(lua: string): { readonly functions: string; readonly rest: string } {
  const functions: string[] = []
  const rest: string[] = []
  let part = rest
  for (const line of lua.split('\n')) {
    if (line === CALL) continue
    if (FUNCTION.test(line)) part = functions
    part.push(line)
    if (line === 'end') part = rest
  }
  const divided = { functions: functions.join('\n'), rest: rest.join('\n') }
  return functions.length > 0 && lua.includes(CALL) && isDivisible(divided) ? divided : { functions: '', rest: lua }
}

/** Names of the rest may occur in functions only as their own parameters and variables. */
function isDivisible({ functions, rest }: { readonly functions: string; readonly rest: string }): boolean {
  const shared = new Set([
    'KEYS',
    'ARGV',
    ...[...rest.matchAll(/^local (\w+(?:,\s*\w+)*)/gm)].flatMap(([, names]) => namesIn(names)),
  ])
  return functions.split(/^(?=local )/m).every((text) => {
    const code = text.replaceAll(/--.*$/gm, '').replaceAll(/"[^"]*"|'[^']*'/g, '')
    const own = [
      ...code.matchAll(/\bfunction ?\w* ?\(([^)]*)\)|\blocal (?!function)([\w, ]+)|\bfor ([\w, ]+?) (?:=|in)/g),
    ]
    const declared = new Set(own.flatMap(([, ...lists]) => lists.flatMap(namesIn)))
    const used = code.match(/(?<![.\w])[A-Za-z_]\w*/g) ?? []
    return used.every((name) => !shared.has(name) || declared.has(name))
  })
}

function namesIn(list = ''): string[] {
  return list.match(/\w+/g) ?? []
}

/** Only these start jobs: their pops go through the gate. */
const POPPING = ['moveToActive', 'moveToDelayed', 'moveToFinished']
const POPS = /"(RPOPLPUSH|ZPOPMIN|LMOVE|BLMOVE|ZMPOP|LMPOP)"/i

/**
 * Scripts that extend locks, before which a queue's places are kept (`lua/limits/queue-limits.lua`): their number of
 * keys, the index of the set of stalled jobs among these, the index of the new duration, ms, among their arguments, and
 * the ids of the jobs, in Lua.
 */
export const EXTENDING: Readonly<
  Record<string, { readonly keys: number; readonly stalled: number; readonly duration: number; readonly ids: string }>
> = {
  extendLock: { keys: 2, stalled: 2, duration: 2, ids: '{ ARGV[3] }' },
  extendLocks: { keys: 1, stalled: 1, duration: 4, ids: 'cmsgpack.unpack(ARGV[3])' },
}

const PACKED_IDS = [/args = cmsgpack.unpack\(ARGV\[1\]\)/, /jobId = args\[2\]/, /deduplicationKey = args\[9\]/]

/** Fragments that the gate and the arguments of our scripts rely on, by script. */
const FRAGMENTS: Readonly<Record<string, readonly RegExp[]>> = {
  // Their ids are read from their first argument (`lua/admission/new-job.lua`).
  addStandardJob: PACKED_IDS,
  addPrioritizedJob: PACKED_IDS,
  addDelayedJob: PACKED_IDS,
  addParentJob: PACKED_IDS,
  addJobScheduler: [
    /repeatKey = KEYS\[1\]\s+local delayedKey = KEYS\[2\]\s+local waitKey = KEYS\[3\]/,
    /pausedKey = KEYS\[4\]\s+local metaKey = KEYS\[5\]\s+local prioritizedKey = KEYS\[6\]/,
    /eventsKey = KEYS\[9\]/,
  ],
  moveToActive: [
    /waitKey = KEYS\[1\]\s+local activeKey = KEYS\[2\]\s+local eventStreamKey = KEYS\[4\]/,
    /rateLimiterKey = KEYS\[6\]\s+local delayedKey = KEYS\[7\]/,
    /getQueueMetadata\(KEYS\[9\], activeKey, waitKey\)/,
    /local markerKey = KEYS\[11\]/,
    /moveJobFromPrioritizedToActive\(KEYS\[3\], activeKey, KEYS\[10\]\)/,
    /"RPOPLPUSH", waitKey, activeKey/,
    /"ZPOPMIN"/,
    /"HMSET", jobKey, "processedOn"/,
    /"DEL", priorityCounterKey/,
  ],
  moveToFinished: [
    /ARGV\[6\] == "1"/,
    /"RPOPLPUSH", waitKey, activeKey/,
    /local parentMarkerKey = parentQueueKey .. ":marker"/,
  ],
  moveToDelayed: [/ARGV\[8\] == "1"/, /"RPOPLPUSH", waitKey, activeKey/],
  extendLock: [/"SET", KEYS\[1\], ARGV\[1\], "PX", ARGV\[2\]/],
  extendLocks: [/stalledKey = KEYS\[1\]/, /lockDuration = ARGV\[4\]/],
}

/** Reads the scripts of the installed BullMQ, without a connection and without a deep import. */
export function captureBullmqScripts(): BullmqScripts {
  const scripts = new Map<string, BullmqScript>()
  const client = {
    defineCommand(name: string, definition: BullmqScript) {
      scripts.set(name.split(':')[0] as string, definition)
    },
  }
  const loadCommands = (RedisConnection.prototype as unknown as { loadCommands(version: string): void }).loadCommands
  loadCommands.call({ _client: client }, 'captured')
  return { version: installedVersion(), scripts }
}

/** Keys of scripts that BullMQ's code calls only once it has a connection: compared with `FRAGMENTS`. */
const FIXED_KEYS: Readonly<Record<string, readonly string[]>> = {
  addJobScheduler: [
    ...['repeat', 'delayed', 'wait', 'paused', 'meta', 'prioritized', 'marker', 'id', 'events', 'pc', 'active'],
  ],
  moveToActive: [
    ...['wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'],
  ],
}

/** A job that BullMQ's code adds with the script of this name: its options, and those of its parent. */
const ADDED_BY: Readonly<Record<string, readonly [opts: object, ofParent: object]>> = {
  addStandardJob: [{}, {}],
  addPrioritizedJob: [{ priority: 1 }, {}],
  addDelayedJob: [{ delay: 1 }, {}],
  addParentJob: [{}, { addToWaitingChildren: true }],
}

/** The calls of BullMQ's own code that end jobs, by script. */
const ENDED_BY: Readonly<Record<string, readonly [method: string, ...call: unknown[]]>> = {
  moveToFinished: ['moveToFinishedArgs', { id: '<id>', opts: {} }, '', '', false, '<target>', '', 0],
  moveToDelayed: ['moveToDelayedArgs', '<id>', 0, '', 0],
}

/** Parts of the keys of an end: the job's id, and its new state. */
const OF_END: Readonly<Record<string, string>> = { '<id>': 'id', '<target>': 'target' }

/**
 * The keys of a script of BullMQ that ours call, in the order of BullMQ's own code: expressions of Lua, to append to
 * the prefix of the queue. undefined for another script.
 */
export function keysOf(script: string): readonly string[] | undefined {
  const args = FIXED_KEYS[script] ?? argumentsOf(script)
  return args?.slice(0, COMPOSED[script]).map((key) => {
    const parts = String(key)
      .split(/(<\w+>)/)
      .filter(Boolean)
    return parts.map((part) => OF_END[part] ?? `'${part}'`).join(' .. ')
  })
}

/** The arguments that BullMQ's code sends for an add or an end. */
function argumentsOf(script: string): readonly unknown[] | undefined {
  const keys = new Proxy({}, { get: (_target, name) => name })
  const added = ADDED_BY[script]
  if (!added) {
    const [method, ...call] = ENDED_BY[script] ?? []
    const made = idleBackend(keys) as unknown as Record<string, (...call: unknown[]) => readonly unknown[]>
    return method === undefined ? undefined : made[method]?.(...call)
  }
  let sent: readonly unknown[] = []
  const client = {
    runCommand(_name: string, args: readonly unknown[]) {
      sent = args
      return Promise.resolve('')
    },
  }
  const [opts, ofParent] = added
  const job = { name: '', data: '', timestamp: 0, opts }
  // It calls the client before its first await.
  void idleBackend().addJobToTransaction(client as never, job as never, '', ofParent, keys as never)
  return sent
}

/**
 * Compares the installed scripts with the tested ones. Known scripts pass silently; unknown scripts with the known
 * layout cause the returned warning.
 * @throws UnsupportedVersionError if the layout differs
 */
export function checkBullmqScripts({ version, scripts }: BullmqScripts): string | undefined {
  const tested = Object.keys(TESTED_BULLMQ)
  const differences = layoutDifferences(scripts)
  if (differences.length > 0) throw new UnsupportedVersionError(version, tested, differences)
  const digest = digestOf(scripts)
  if (Object.values(TESTED_BULLMQ).includes(digest)) return undefined
  return (
    `bullmq ${version} has scripts that this version of sluice was not tested with (tested: ${tested.join(', ')}). ` +
    'Their layout is the known one, so they are used; run the compatibility suite before you rely on them'
  )
}

/** One digest over the scripts that ours are composed with: text and number of keys. */
function digestOf(scripts: BullmqScripts['scripts']): string {
  const hash = createHash('sha1')
  for (const name of Object.keys(COMPOSED).toSorted()) {
    const script = scripts.get(name)
    hash.update(`${name}\0${script?.numberOfKeys}\0${script?.lua}\0`)
  }
  return hash.digest('hex')
}

function layoutDifferences(scripts: ReadonlyMap<string, BullmqScript>): string[] {
  const differences: string[] = []
  const extending = Object.entries(EXTENDING).map(([name, { keys }]) => [name, keys] as const)
  for (const [name, keys] of [...Object.entries({ ...COMPOSED, ...CLOCKED }), ...extending]) {
    const script = scripts.get(name)
    if (!script) differences.push(`${name} is missing`)
    else if (script.numberOfKeys !== keys) differences.push(`${name} has ${script.numberOfKeys} keys, expected ${keys}`)
    for (const fragment of script ? (FRAGMENTS[name] ?? []) : []) {
      if (!fragment.test(script?.lua ?? '')) differences.push(`${name} does not contain ${fragment.source}`)
    }
  }
  differences.push(...delayDifferences(scripts))
  const popping = [...scripts].filter(([, { lua }]) => POPS.test(lua)).map(([name]) => name)
  const unexpected = popping.filter((name) => !POPPING.includes(name))
  if (unexpected.length > 0) differences.push(`${unexpected.join(', ')} can start jobs too`)
  return differences
}

function delayDifferences(scripts: ReadonlyMap<string, BullmqScript>): string[] {
  return DELAY_TIMES.flatMap(({ line, scripts: expected }) => {
    const missing = expected.filter((name) => scripts.get(name)?.lua.includes(line) === false)
    const others = [...scripts].filter(
      ([name, { lua }]) => lua.includes(line) && !(name in COMPOSED || name in CLOCKED),
    )
    return [
      ...missing.map((name) => `${name} does not contain ${line}`),
      ...others.map(([name]) => `${name} also contains ${line}`),
    ]
  })
}

// BullMQ does not export its version, but every backend has it.
function installedVersion(): string {
  return (idleBackend() as unknown as { version: string }).version
}

// A backend that owns no connection opens none.
function idleBackend(keys: object = {}): RedisQueueBackend {
  return new RedisQueueBackend({} as RedisConnection, '', keys as never, String, { connection: {} }, undefined, false)
}
