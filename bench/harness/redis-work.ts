import { Redis } from 'ioredis'
import { connectionTo, type RedisAddress } from './figure.ts'
import { scriptOf } from './scripts.ts'
import { median } from './statistics.ts'

/** One call of a command, or of a script by what is called of it. */
interface Work {
  readonly name: string
  /**
   * How long it kept Redis busy: the CPU time of its main thread or, if that is less, the time that Redis counts for the
   * command itself. What else the machine does meanwhile is in the second only, and what Redis does between commands
   * (its timers, which also expire keys) in the first only.
   */
  readonly us: number
}

/** They wait in Redis, so others have to pass. */
const WAITS = /^(b[lrz]|xread|subscribe|psubscribe|unsubscribe)/
const BASELINES = 200

type Command = Parameters<Redis['sendCommand']>[0]

/** What each command costs Redis: those of its clients are sent one at a time, between two readings of its clocks. */
export class RedisWork {
  readonly #redis: RedisAddress
  readonly #meter: Redis
  #found: Work[] | undefined
  #turn: Promise<unknown> = Promise.resolve()
  #readingUs = 0

  private constructor(redis: RedisAddress) {
    this.#redis = redis
    this.#meter = new Redis(connectionTo(redis))
  }

  static async start(redis: RedisAddress): Promise<RedisWork> {
    const work = new RedisWork(redis)
    const readings: number[] = []
    for (let i = 0; i < BASELINES; i++) readings.push(-(await work.#read()).cpuUs + (await work.#read()).cpuUs)
    work.#readingUs = median(readings)
    return work
  }

  /** A client whose commands are measured, unlike those of its duplicates. Commands of a pipeline are sent alone. */
  client(): Redis {
    const client = new Redis(connectionTo(this.#redis))
    const send = client.sendCommand.bind(client)
    client.sendCommand = (command, stream) => {
      if (!this.#found || client.status !== 'ready' || WAITS.test(command.name)) return send(command, stream)
      this.#turn = this.#turn.then(() => this.#measure(command, () => send(command)))
      return command.promise
    }
    return client
  }

  /** All commands that were sent meanwhile. */
  async during(deed: () => Promise<unknown>): Promise<Work[]> {
    const found: Work[] = []
    this.#found = found
    try {
      await deed()
    } finally {
      // A reply arrives before its work is known.
      await this.#turn
      this.#found = undefined
    }
    return found
  }

  stop(): void {
    this.#meter.disconnect()
  }

  async #measure(command: Command, send: () => unknown): Promise<void> {
    const before = await this.#read()
    send()
    // Only now: the first call of a script on a connection becomes an EVAL with its text as it is written.
    const { name, args } = command
    await command.promise.catch(() => {})
    const after = await this.#read()
    const cpuUs = Math.max(0, after.cpuUs - before.cpuUs - this.#readingUs)
    const spentUs = (after.spentUs.get(name) ?? 0) - (before.spentUs.get(name) ?? 0)
    this.#found?.push({ name: scriptOf([name, String(args[0])]) ?? name, us: Math.min(cpuUs, spentUs) })
  }

  async #read() {
    const info = await this.#meter.info('cpu', 'commandstats')
    const secondsOf = (what: string) =>
      Number(new RegExp(`^used_cpu_${what}_main_thread:([\\d.]+)`, 'm').exec(info)?.[1])
    const spentUs = new Map<string, number>()
    for (const [, command = '', us] of info.matchAll(/^cmdstat_([^:|]+)[^:]*:calls=\d+,usec=(\d+)/gm))
      spentUs.set(command, (spentUs.get(command) ?? 0) + Number(us))
    return { cpuUs: Math.round((secondsOf('user') + secondsOf('sys')) * 1e6), spentUs }
  }
}
