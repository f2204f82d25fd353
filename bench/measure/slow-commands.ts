import type { Redis } from 'ioredis'
import type { Row } from '../figure.ts'
import { ownName, scriptNames } from './script-names.ts'
import { median } from './statistics.ts'

/** A command that Redis was busy with for long. */
export interface SlowCommand {
  /** The name of its script, or that of the command. */
  readonly name: string
  readonly ms: number
  /** How many took longer than is asked: few among thousands were interrupted by what else the machine does. */
  readonly above: number
}

/** What is asked of the slowest. ms */
const ASKED_MS = 5
/** Commands below this are of no interest. µs */
const FROM_US = 200
const KEPT = 100_000
/** Sent when a script is used for the first time: compiling it is most of its time. */
const FIRST_USES: readonly string[] = ['eval', 'script']

type Entry = readonly [id: number, atSeconds: number, us: number, command: readonly string[], ...rest: unknown[]]

/** Which commands keep Redis busy for how long, by its SLOWLOG. */
export class SlowCommands {
  readonly #client: Redis
  readonly #names: ReadonlyMap<string, string>

  private constructor(client: Redis, names: ReadonlyMap<string, string>) {
    this.#client = client
    this.#names = names
  }

  static async start(client: Redis): Promise<SlowCommands> {
    const names = await scriptNames(client)
    await client.config('SET', 'slowlog-log-slower-than', FROM_US)
    await client.config('SET', 'slowlog-max-len', KEPT)
    const commands = new SlowCommands(client, names)
    await commands.take()
    return commands
  }

  /** What is slow when the same is done in several rounds, the slowest first. */
  async during(rounds: number, deed: (round: number) => Promise<unknown>): Promise<SlowCommand[]> {
    const found: SlowCommand[][] = []
    for (let round = 0; round < rounds; round++) {
      await this.take()
      await deed(round)
      found.push(await this.take())
    }
    return typicallySlowest(found)
  }

  /** The slowest of each name since the last call. */
  async slowest(): Promise<SlowCommand[]> {
    return typicallySlowest([await this.take()])
  }

  /** The slow ones since the last call, but for first uses of scripts. */
  async take(): Promise<SlowCommand[]> {
    const entries = (await this.#client.slowlog('GET', KEPT)) as Entry[]
    await this.#client.slowlog('RESET')
    return entries
      .map(([, , us, command]) => ({ name: this.#nameOf(command), ms: us / 1000, above: Number(us > 1000 * ASKED_MS) }))
      .filter(({ name }) => !FIRST_USES.includes(name) && name !== 'slowlog')
  }

  #nameOf([command = '', first = '']: readonly string[]): string {
    const name = command.toLowerCase()
    const script = { evalsha: first, fcall: ownName(first) }[name]
    return script === undefined ? name : (this.#names.get(script) ?? script)
  }
}

/**
 * The slowest of each name, in the median of rounds in which the same was done: Redis takes the time by the clock, so
 * that a moment in which the machine did something else is in it.
 */
function typicallySlowest(rounds: readonly (readonly SlowCommand[])[]): SlowCommand[] {
  const names = [...new Set(rounds.flat().map(({ name }) => name))]
  const slowest = (name: string) =>
    median(rounds.map((round) => Math.max(0, ...round.filter((one) => one.name === name).map(({ ms }) => ms))))
  const above = (name: string) => rounds.flat().reduce((sum, one) => sum + (one.name === name ? one.above : 0), 0)
  return names.map((name) => ({ name, ms: slowest(name), above: above(name) })).sort((a, b) => b.ms - a.ms)
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
