import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import { readLuaFile, resolveIncludes } from '../../src/scripts.ts'

/** What is done to a queue, at a time of Redis's clock and in a run of Redis. */
export type Operation = { readonly now: number; readonly run: string } & (
  | { readonly what: 'depart'; readonly jobs: readonly Job[]; readonly asked: number; readonly horizonUs: number }
  | { readonly what: 'giveBack'; readonly count: number }
  | {
      readonly what: 'override'
      readonly changes: Readonly<Record<string, unknown>>
      readonly ttlMs?: number
      readonly first?: boolean
    }
  | { readonly what: 'pause'; readonly kind: 'until' | 'for' | 'clear'; readonly ms: number }
  | { readonly what: 'loseMeter' | 'loseAll' | 'read' }
)

export interface Job {
  readonly id: string
  readonly cost: number
}

/** What the scripts made of an operation. */
export interface Outcome {
  readonly reply: unknown
  /** Absolute and exact, ticks of 1/1024 µs; undefined while nothing is stored. */
  readonly meter: { readonly tat: bigint; readonly last: bigint; readonly rest: string } | undefined
}

const ORIGINAL = /^ *--- @original$/m
const SCRIPT = /^ *--- @script ([\w-]+)$/gm

const POP = `
  local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not id then return { 0, 0, 0, 0 } end
  redis.call('HMSET', string.sub(KEYS[3], 1, -11) .. id, 'processedOn', '0')
  redis.call('SET', string.sub(KEYS[3], 1, -11) .. id .. ':lock', '')
  return { {}, id, 0, 0 }`

const HELD_CLOCK = 'local function redis_now() return held.now end'

/** The text of replay.lua with the scripts in it. */
export function replayText(): string {
  const template = readFileSync(new URL('replay.lua', import.meta.url), 'utf8')
  const script = (_line: string, name: string) => readLuaFile(name).replace(ORIGINAL, () => POP)
  const readLua = (file: string) => (file === 'lib/clock' ? HELD_CLOCK : readLuaFile(file))
  return resolveIncludes(template.replace(SCRIPT, script), readLua)
}

/** Replays operations on the queue with this key prefix, in one call. */
export async function replay(client: Redis, base: string, operations: readonly Operation[]): Promise<Outcome[]> {
  const encoded = JSON.stringify(operations.map(encode))
  const raw = (await client.call('EVAL', replayText(), 1, `${base}meta:shape`, encoded)) as [unknown, string[]][]
  return raw.map(([reply, [origin, tat, last, ...rest]]) => ({
    reply,
    meter: origin ? { tat: absolute(origin, tat), last: absolute(origin, last), rest: rest.join(' ') } : undefined,
  }))
}

function encode(operation: Operation): Record<string, unknown> {
  const { now, run, what } = operation
  switch (what) {
    case 'depart': {
      const jobs = operation.jobs.map(({ id, cost }) => [id, JSON.stringify({ attempts: 1, cost })])
      return { now, run, what, jobs, asked: operation.asked, horizon: operation.horizonUs }
    }
    case 'override': {
      const { changes, ttlMs = '', first } = operation
      return { now, run, what, changes: JSON.stringify(changes), ttl: String(ttlMs), first: first ? '1' : '0' }
    }
    case 'pause':
      return { now, run, what, kind: operation.kind, value: String(operation.ms) }
    default:
      return { ...operation }
  }
}

function absolute(origin: string, relative: string | undefined): bigint {
  return BigInt(origin) * 1024n + BigInt(Number(relative) * 1024)
}
