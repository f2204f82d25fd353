import { createHash } from 'node:crypto'
import type { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'
import { sum } from './statistics.ts'

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
/**
 * What sleeping workers send that is no poll: blocking waits, upkeep, reports, and the repeated subscription by which
 * each process asks whether its wake-up connection still answers.
 */
export const NO_POLL = ['bzpopmin', 'report', 'subscribe', ...UPKEEP]

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
