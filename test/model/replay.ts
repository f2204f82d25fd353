import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { StoredRate } from '../../src/limits/schedule.ts'
import { LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import type { StoredValue } from '../../src/shape/shape.ts'
import type { BucketState } from '../../src/testing/bucket-state.ts'
import { heldExpiries } from './held-expiries.ts'

/** An operation on a queue, at a time of Redis's clock (µs) and in a run of Redis. */
export type Operation = { readonly now: number; readonly run: string } & Deed

export type Deed =
  | { readonly what: 'declare'; readonly fields: ModelFields }
  | { readonly what: 'override'; readonly changes: OverrideChanges; readonly ttlMs?: number }
  | { readonly what: 'pause'; readonly kind: 'until' | 'for' | 'clear'; readonly ms: number }
  | { readonly what: 'depart'; readonly jobs: readonly Job[]; readonly asked: number; readonly horizonUs: number }
  | { readonly what: 'giveBack'; readonly count: number; readonly ago: number }
  | { readonly what: 'loseMeter' | 'loseAll' | 'read' }

/** The shape as stored. */
export interface ModelFields extends Readonly<Record<string, StoredValue>> {
  readonly rate: StoredRate
  readonly burst: number
  readonly mode: 'enforce' | 'shadow' | 'off'
  readonly onStateLoss: 'hold' | 'burst'
  readonly horizonMs: number
}

export type OverrideChanges = Readonly<Record<string, StoredValue | { readonly clear: true }>>

export interface Job {
  readonly id: string
  readonly cost: number
}

/** The compared part of a meter's state. */
export type MeterState = Pick<BucketState, 'tat' | 'last' | 'intervalUs' | 'burst' | 'mode' | 'horizonUs'>

/** The outcome of an operation. */
export interface Outcome {
  readonly reply: unknown
  /** Undefined while nothing is stored. */
  readonly meter: MeterState | undefined
}

/** Replaces BullMQ's script: the commands that the gate checks. */
const POP = `
return { keys = function(base) return { base .. 'wait', base .. 'active' } end, run = function(redis, KEYS, ARGV)
  local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not id then return { 0, 0, 0, 0 } end
  local job_key = ARGV[1] .. id
  redis.call('HMSET', job_key, 'processedOn', '0')
  redis.call('SET', job_key .. ':lock', '')
  return { {}, id, 0, 0 }
end }`

/** Replaces files of `lua/`: the clock and the run of Redis come from `faked`; no key expires by real time. */
const HELD: Readonly<Record<string, string>> = {
  'bullmq/moveToActive': POP,
  'redis/redis-now': "local faked = use 'faked'\nreturn function() return faked.now end",
  'redis/run-id': "local faked = use 'faked'\nreturn function() return faked.run end",
  faked: `local faked = { now = 0, run = '' }
redis, faked.expire = ${heldExpiries({ nowUs: 'faked.now', index: "KEYS[1] .. ':expiries'" })}
local real = redis
redis = setmetatable({
  call = function(command, ...)
    if command == 'INFO' then return 'run_id:' .. faked.run end
    return real.call(command, ...)
  end,
}, { __index = real })
return faked`,
}

/** Replays operations on queues, each list of them in one call. */
export class Replayer {
  readonly #client: Redis
  readonly #sha: Promise<string>

  constructor(client: Redis) {
    this.#client = client
    this.#sha = client.script('LOAD', heldText(new URL('replay.lua', import.meta.url))) as Promise<string>
  }

  /** @param base key prefix of the queue, with its colon */
  async replay(base: string, operations: readonly Operation[]): Promise<Outcome[]> {
    const encoded = JSON.stringify(operations.map(encode))
    const raw = await this.#client.evalsha(await this.#sha, 1, `${base}meta:shape`, encoded)
    return (raw as [unknown, (string | null)[]][]).map(([reply, meter], i) => ({
      reply: operations[i]?.what === 'read' ? (reply as string[]).map(Number) : reply,
      meter: decodeMeter(meter),
    }))
  }
}

/** The text of a file that uses the scripts of `lua/`, which run with the clock and the Redis run in `faked`. */
export function heldText(file: URL): string {
  const readLua = (file: string) => HELD[file] ?? verbAsFunction(file, readLuaFile(file))
  return new LuaComposer(readLua).text(readFileSync(file, 'utf8'))
}

/** The text of a file of `lua/`; that of a script is a module whose function runs it. */
export function verbAsFunction(file: string, text: string): string {
  return file.startsWith('verbs/') ? `return function(KEYS, ARGV)\n${text}\nend` : text
}

function encode(operation: Operation): unknown {
  switch (operation.what) {
    case 'declare':
      return { ...operation, fields: JSON.stringify(operation.fields) }
    case 'override':
      return { ...operation, changes: JSON.stringify(operation.changes), ttl: String(operation.ttlMs ?? '') }
    case 'depart':
      return { ...operation, jobs: operation.jobs.map(({ id, cost }) => [id, JSON.stringify({ attempts: 1, cost })]) }
    default:
      return operation
  }
}

function decodeMeter(meter: readonly (string | null)[]): MeterState | undefined {
  const [origin, tat, last, interval, burst, horizon, mode] = meter
  if (!origin) return undefined
  const absolute = (text: string | null | undefined) => BigInt(origin) * 1024n + BigInt(Number(text) * 1024)
  return {
    tat: absolute(tat),
    last: absolute(last),
    intervalUs: Number(interval),
    burst: Number(burst),
    mode: mode as MeterState['mode'],
    horizonUs: Number(horizon),
  }
}
