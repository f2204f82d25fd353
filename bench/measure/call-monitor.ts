import type { Redis } from 'ioredis'
import { scriptNames, scriptOf } from './script-names.ts'

/** How often clients sent each command for one queue; EVALSHA and EVAL by the name of their script. */
export type Calls = ReadonlyMap<string, number>

/** What a worker sends regardless of its jobs: BullMQ renews locks and checks for stalled jobs by timers. */
export const UPKEEP: readonly string[] = ['extendLock', 'extendLocks', 'moveStalledJobsToWait']

/** A repeated subscription: each process asks every 1.5 s whether its wake-up connection still answers. */
export const CONNECTION_WATCH = 'subscribe'

const QUEUE_OF_KEY = /^[^:]+:([^:]+)(?::|$)/

/**
 * Counts the commands of clients per queue, with Redis's MONITOR, so that many queues can be measured at once. Commands
 * inside scripts are not counted.
 */
export class CallMonitor {
  readonly #connection: Redis
  readonly #names: ReadonlyMap<string, string>
  #calls = new Map<string, Map<string, number>>()

  private constructor(connection: Redis, names: ReadonlyMap<string, string>) {
    this.#connection = connection
    this.#names = names
    connection.on('monitor', (_time: string, args: string[], source: string) => {
      if (source !== 'lua') this.#count(args)
    })
  }

  static async start(client: Redis): Promise<CallMonitor> {
    const names = await scriptNames(client)
    return new CallMonitor(await client.monitor(), names)
  }

  isScript(name: string): boolean {
    return [...this.#names.values()].includes(name)
  }

  /** Starts counting from 0. */
  reset(): void {
    this.#calls = new Map()
  }

  of(queue: string): Calls {
    return this.#calls.get(queue) ?? new Map()
  }

  stop(): void {
    // What still arrives would be taken for replies.
    this.#connection.stream.removeAllListeners('data')
    this.#connection.disconnect()
  }

  #count(args: readonly string[]): void {
    const script = scriptOf(args, this.#names)
    const key = script ? args[3] : args[1]
    const queue = QUEUE_OF_KEY.exec(key ?? '')?.[1]
    if (!queue) return
    const calls = this.#calls.get(queue) ?? new Map<string, number>()
    this.#calls.set(queue, calls)
    const name = script ?? (args[0] as string).toLowerCase()
    calls.set(name, (calls.get(name) ?? 0) + 1)
  }
}
