import { createHash } from 'node:crypto'
import type { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'
import type { Row } from './figure.ts'
import { median, sum } from './statistics.ts'

/** `moveToActive:6.7.0`, `sluice:1.0.0:6.7.0:exchange`, or `sluice:1.0.0:6.7.0:add-flow-2` */
const NAME_OF_COMMAND = /^(?:sluice:[^:]+:[^:]+:)?(add-flow|[^:]+)/

/** What runs a script: its SHA-1, or the name of our function without that of the library; and the script's name. */
export type ScriptNames = Map<string, string>

/** Of the scripts that are defined on a client. */
export function scriptsOn(client: Redis): ScriptNames {
  const names: ScriptNames = new Map()
  for (const [command, { sha }] of Object.entries(client.scriptsSet as Readonly<Record<string, { sha: string }>>)) {
    const name = NAME_OF_COMMAND.exec(command)?.[1] as string
    names.set(sha, name).set(name.replaceAll('-', '_'), name)
  }
  return names
}

/** Of all scripts of queues and workers: a shaped queue defines them on its client. */
async function scriptNames(client: Redis): Promise<ScriptNames> {
  const connection = client.duplicate({ maxRetriesPerRequest: null })
  const queue = new ShapedQueue('script-names', { connection, skipMetasUpdate: true })
  await queue.waitUntilReady()
  const names = scriptsOn(connection)
  await queue.close()
  connection.disconnect()
  return names
}

/** What {@link ScriptNames} knows a call by: undefined if no script is called. */
export function scriptOf([command = '', script = '']: readonly string[]): string | undefined {
  const name = command.toLowerCase()
  if (name === 'fcall') return script.replace(/^sluice_[\da-f]+_/, '')
  if (name === 'evalsha') return script
  return name === 'eval' ? createHash('sha1').update(script).digest('hex') : undefined
}

/** How often clients sent each command for one queue; scripts by their name. */
export type Calls = ReadonlyMap<string, number>

/** What a worker sends regardless of its jobs: BullMQ renews locks and checks for stalled jobs by timers. */
const UPKEEP: readonly string[] = ['extendLock', 'extendLocks', 'moveStalledJobsToWait']
/** A repeated subscription: each process asks every 1.5 s whether its wake-up connection still answers. */
export const CONNECTION_WATCH = 'subscribe'
/** BullMQ's blocking wait: the blocking call, and the fetch after each timeout. */
export const BLOCKING_WAIT = ['bzpopmin', 'moveToActive', 'exchange']
/** What sleeping workers send that is no poll: blocking waits, upkeep, reports, and the watch of the connection. */
export const NO_POLL = ['bzpopmin', 'report', CONNECTION_WATCH, ...UPKEEP]

const QUEUE_OF_KEY = /^[^:]+:([^:]+)(?::|$)/
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', a: '\x07', b: '\b' }

/** A text as shown by MONITOR, which escapes all bytes but plain ASCII. */
function unescaped(text: string): string {
  const bytes = text.replace(/\\(?:x([\da-f]{2})|(.))/g, (_all, hex: string | undefined, character: string) =>
    hex ? String.fromCharCode(Number.parseInt(hex, 16)) : (ESCAPES[character] ?? character),
  )
  return Buffer.from(bytes, 'latin1').toString()
}

/**
 * Counts the commands of clients per queue, with Redis's MONITOR, so that many queues can be measured at once. Commands
 * inside scripts are not counted.
 */
export class CallMonitor {
  readonly #connection: Redis
  readonly #names: ScriptNames
  #calls = new Map<string, Map<string, number>>()

  private constructor(connection: Redis, names: ScriptNames) {
    this.#connection = connection
    this.#names = names
    connection.on('monitor', (_time: string, args: string[], source: string) => {
      if (source !== 'lua') this.#count(args)
    })
  }

  static async during<T>(client: Redis, use: (monitor: CallMonitor) => Promise<T>): Promise<T> {
    const names = await scriptNames(client)
    const monitor = new CallMonitor(await client.monitor(), names)
    try {
      return await use(monitor)
    } finally {
      // What still arrives would be taken for replies.
      monitor.#connection.stream.removeAllListeners('data')
      monitor.#connection.disconnect()
    }
  }

  /** Starts counting from 0. */
  reset(): void {
    this.#calls = new Map()
  }

  of(queue: string): Calls {
    return this.#calls.get(queue) ?? new Map()
  }

  /** How many scripts workers sent, and how many of upkeep. */
  ofWorkers(queue: string): { readonly scripts: number; readonly upkeep: number } {
    const known = new Set(this.#names.values())
    const calls = [...this.of(queue)].filter(([name]) => known.has(name) && !name.startsWith('add'))
    const count = (upkeep: boolean) =>
      sum(calls.filter(([name]) => UPKEEP.includes(name) === upkeep).map(([, times]) => times))
    return { scripts: count(false), upkeep: count(true) }
  }

  #count([command = '', first = '', ...rest]: readonly string[]): void {
    const script = scriptOf([command, unescaped(first)])
    const name = script === undefined ? command.toLowerCase() : this.#names.get(script)
    // Its calls would be missing from a figure.
    if (name === undefined) throw new Error(`MONITOR shows the script ${first.slice(0, 60)}, which no queue defines`)
    const queue = QUEUE_OF_KEY.exec(script === undefined ? first : (rest[1] ?? ''))?.[1]
    if (!queue) return
    const calls = this.#calls.get(queue) ?? new Map<string, number>()
    this.#calls.set(queue, calls)
    calls.set(name, (calls.get(name) ?? 0) + 1)
  }
}

/** What is asked of the slowest. ms */
const ASKED_MS = 5
/** Commands below this are of no interest. µs */
const FROM_US = 200
const KEPT = 100_000
/** Sent when a script is used for the first time: compiling it is most of its time. */
const NOT_SLOW: readonly string[] = ['eval', 'script', 'function', 'slowlog']

/** A command, or a script by its name, that Redis was busy with for long. */
export interface SlowCommand {
  readonly name: string
  readonly ms: number
  /** How many took longer than is asked: few among thousands were interrupted by what else the machine does. */
  readonly above: number
}

type Entry = readonly [id: number, atSeconds: number, us: number, command: readonly string[]]

/** Which commands keep Redis busy for how long, by its SLOWLOG. */
export class SlowCommands {
  readonly #client: Redis
  readonly #names: ScriptNames

  private constructor(client: Redis, names: ScriptNames) {
    this.#client = client
    this.#names = names
  }

  static async start(client: Redis): Promise<SlowCommands> {
    const commands = new SlowCommands(client, await scriptNames(client))
    await client.config('SET', 'slowlog-log-slower-than', FROM_US)
    await client.config('SET', 'slowlog-max-len', KEPT)
    await commands.#take()
    return commands
  }

  /**
   * What is slow when the same is done in several rounds, the slowest first, in the median of the rounds: Redis takes the
   * time by the clock, so that a moment in which the machine did something else is in it.
   */
  async during(rounds: number, deed: (round: number) => Promise<unknown>): Promise<SlowCommand[]> {
    const found: SlowCommand[][] = []
    for (let round = 0; round < rounds; round++) {
      await this.#take()
      await deed(round)
      found.push(await this.#take())
    }
    const all = found.flat()
    return [...new Set(all.map(({ name }) => name))]
      .map((name) => {
        const ofName = (some: readonly SlowCommand[]) => some.filter((one) => one.name === name)
        const slowest = found.map((round) => Math.max(0, ...ofName(round).map(({ ms }) => ms)))
        return { name, ms: median(slowest), above: sum(ofName(all).map(({ above }) => above)) }
      })
      .sort((a, b) => b.ms - a.ms)
  }

  /** The slow ones since the last call, but for first uses of scripts. */
  async #take(): Promise<SlowCommand[]> {
    const entries = (await this.#client.slowlog('GET', KEPT)) as unknown as Entry[]
    await this.#client.slowlog('RESET')
    return entries
      .map(([, , us, command]) => {
        const name = (command[0] as string).toLowerCase()
        const script = name === 'eval' ? undefined : scriptOf(command)
        const known = script === undefined ? name : (this.#names.get(script) ?? script)
        return { name: known, ms: us / 1000, above: Number(us > 1000 * ASKED_MS) }
      })
      .filter(({ name }) => !NOT_SLOW.includes(name))
  }
}

export function describeSlow(slowest: readonly SlowCommand[], most = 3): string {
  const worst = slowest.filter(({ ms }) => ms > 0).slice(0, most)
  const describe = ({ name, ms, above }: SlowCommand) =>
    `${name} ${ms.toFixed(1)} ms${above > 0 ? ` (${above} above ${ASKED_MS} ms)` : ''}`
  return worst.map(describe).join(', ') || `none above ${FROM_US / 1000} ms`
}

export function slowRow(setup: string, slowest: readonly SlowCommand[], reached = describeSlow(slowest)): Row {
  const ok = slowest.every(({ ms }) => ms <= ASKED_MS)
  return { setup, asked: `<= ${ASKED_MS} ms`, reached, ok, values: { slowest } }
}
