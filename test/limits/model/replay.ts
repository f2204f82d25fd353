import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { LimitWire } from '../../../src/limits/definition.ts'
import { LuaComposer } from '../../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../../src/redis/lua-files.ts'
import { verbAsFunction } from '../../model/replay.ts'

/** In the order of replay.lua. */
const VERBS = [
  'peek',
  'take',
  'reserve',
  'late',
  'settle',
  'lose',
  'extend',
  'release',
  'depart',
  'change',
  'takeAll',
  'peekAll',
  'back',
  'undo',
] as const

/**
 * `late` charges for a time ahead whatever that is; `settle` charges now, or gives back; `depart` charges a few times and
 * stores once; `change` tells that the rule was changed now from the one before, and looks; `takeAll` and `peekAll` decide
 * over all limits together;
 * `back` takes back what was charged for a time;
 * `undo` the charge of the operation before.
 */
export type Verb = (typeof VERBS)[number]

/** What is done to a limit at a time of Redis's clock (µs). */
export interface Operation {
  readonly verb: Verb
  readonly now: number
  /** Which of the limits, from 1 on, which is the default; all of them for `takeAll` and `peekAll`. */
  readonly limit?: number
  readonly cost?: number
  /** µs: `reserve` and `depart` charge up to so far ahead, `late` so much later than the limit would have it. */
  readonly ahead?: number
  readonly lease?: number
  /** µs: the time that was charged, for `back`. */
  readonly at?: number
  /** The operation that charged what goes back: whether it did, and for which time, follows from what was decided. */
  readonly of?: Operation
}

export interface Answer {
  /** µs until it conforms; for `extend` and `release` what their scripts return. */
  readonly offset: number
  readonly allowed: boolean
  /** As the algorithm has it, neither rounded nor cut at 0. */
  readonly left: number
  readonly resetAt: number
}

/** What a limit knows of the rule before its own. */
export interface Known {
  /** That rule, for `change`. */
  readonly before?: LimitWire
  readonly tiers?: Readonly<
    Record<string, Omit<LimitWire, 'schedule'> & { readonly schedule: LimitWire['schedule'] | false }>
  >
  /** When its rates changed last, and when they did before, µs. */
  readonly rate_changes?: readonly [last: string, earlier: string]
}

/** `never`: no key expires. `held`: each does by the held clock, to the millisecond; each call starts over with that. */
export type Expiry = 'never' | 'held'

/** How many departures `depart` makes at most; its leases are the numbers after the one that it names. */
export const DEPARTURES = 4
const HELD: Readonly<Record<string, string>> = {
  held: 'return { now = 0 }',
  'redis/redis-now': "local held = use 'held'\nreturn function() return held.now end",
}
const DOUBLE_BYTES = 8
const OPERATION_DOUBLES = 7
const ANSWER_DOUBLES = 4

/** Replays operations on limits, each list of them in one call. */
export class Replayer {
  readonly #client: Redis
  readonly #sha: Promise<string>

  /** @param alter changes a file of lua/, to see a test fail */
  constructor(client: Redis, alter: (text: string, file: string) => string = (text) => text) {
    this.#client = client
    this.#sha = client.script(
      'LOAD',
      replayText((file) => alter(readLuaFile(file), file)),
    ) as Promise<string>
  }

  /** @param base what the keys of the limits begin with */
  async replay(
    base: string,
    wires: readonly (LimitWire & Known)[],
    operations: readonly Operation[],
    expiry: Expiry = 'never',
  ): Promise<Answer[]> {
    const keys = [...wires.map((_, i) => `${base}:control${i + 1}`), ...wires.map((_, i) => stateKey(base, i + 1))]
    const definitions = JSON.stringify(wires.map((wire) => JSON.stringify(wire)))
    const args = [await this.#sha, keys.length, ...keys, definitions, encode(operations), expiry]
    const reply = (await this.#client.callBuffer('EVALSHA', ...args)) as Buffer
    return operations.map((_, i) => decode(reply, i * ANSWER_DOUBLES * DOUBLE_BYTES))
  }
}

/** The key of a limit's state. */
export function stateKey(base: string, limit = 1): string {
  return `${base}:state${limit}`
}

/** The text of replay.lua with the scripts that it uses. */
function replayText(readLua: (file: string) => string): string {
  const text = readFileSync(new URL('replay.lua', import.meta.url), 'utf8')
  return new LuaComposer((file) => HELD[file] ?? verbAsFunction(file, readLua(file))).text(text)
}

function encode(operations: readonly Operation[]): Buffer {
  const bytes = Buffer.alloc(operations.length * OPERATION_DOUBLES * DOUBLE_BYTES)
  let at = 0
  for (const { verb, now, limit = 1, cost = 1, ahead = 0, lease = 0, at: slot = 0 } of operations) {
    const number = verb === 'takeAll' || verb === 'peekAll' ? 0 : limit
    for (const value of [VERBS.indexOf(verb) + 1, now, number, cost, ahead, lease, slot])
      at = bytes.writeDoubleLE(value, at)
  }
  return bytes
}

function decode(bytes: Buffer, at: number): Answer {
  const double = (i: number) => bytes.readDoubleLE(at + i * DOUBLE_BYTES)
  return { offset: double(0), allowed: double(1) === 1, left: double(2), resetAt: double(3) }
}
