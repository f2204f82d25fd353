import { createHash } from 'node:crypto'
import type { Cluster } from 'ioredis'
import { absentKey } from '../redis/commands.ts'
import { withinMs } from '../redis/deadlines.ts'
import { shapeKey } from '../redis/keys.ts'
import { LuaComposer } from '../redis/lua-composer.ts'
import { readLuaFile } from '../redis/lua-files.ts'
import { slotOfKey } from '../redis/shards.ts'
import { type Batch, type BatchClient, type Deferred, inBatch } from './batch.ts'

/** How long a read that goes to replicas waits for the clock of their master, ms. */
const MASTER_WAIT_MS = 200

let script: { readonly text: string; readonly sha: string } | undefined

/** `lua/verbs/view.lua` as a text: the name of its library depends on the installed BullMQ. */
function viewScript() {
  if (!script) {
    const text = new LuaComposer(readLuaFile).file('verbs/view')
    script = { text, sha: createHash('sha1').update(text).digest('hex') }
  }
  return script
}

/**
 * Asks for a view of queues on one node, and on a cluster in one hash slot.
 * @param nowUs of the server whose clock counts, if that is another one
 */
export function askForViews<T>(
  batch: Batch,
  bases: readonly string[],
  [subject, asked]: readonly [subject: string, asked: object],
  nowUs?: number,
): Deferred<(T | undefined)[]> {
  const { text, sha } = viewScript()
  const shapes = bases.map(shapeKey)
  // While a hash slot moves, no node has all keys: it refuses such a call, which is then repeated.
  const keys = batch.isCluster ? [...shapes, absentKey(shapes[0])] : shapes
  const args = [keys.length, ...keys, subject, JSON.stringify(asked), nowUs ?? '', Date.now() * 1000]
  const replies = batch.addScript<string[]>(text, sha, args)
  return () => replies().map((reply) => (JSON.parse(reply) as T | null) ?? undefined)
}

/** The same in a round trip of its own. */
export async function readViews<T>(
  redis: BatchClient,
  bases: readonly string[],
  view: readonly [subject: string, asked: object],
): Promise<(T | undefined)[]> {
  if (!redis.isCluster) return readTogether(redis, bases, view)
  const views = await Promise.all(
    bases.map(async (base) => readTogether<T>(redis, [base], view, await masterTime(redis as Cluster, base))),
  )
  return views.flat()
}

export async function readView<T>(redis: BatchClient, base: string, subject: string, asked: object) {
  const [view] = await readViews<T>(redis, [base], [subject, asked])
  return view
}

function readTogether<T>(
  redis: BatchClient,
  bases: readonly string[],
  view: readonly [subject: string, asked: object],
  nowUs?: number,
) {
  return inBatch(redis, (batch) => askForViews<T>(batch, bases, view, nowUs))
}

/** The parts of ioredis that we use beyond its types. */
interface Slotted {
  /** The nodes with each hash slot, the master first, as `host:port`. */
  readonly slots?: readonly (readonly string[] | undefined)[]
}

/**
 * The time of the master with the keys, µs, if reads do not go there: its clock counts. A replica's is the next best.
 * undefined: that of the server that answers.
 */
async function masterTime(cluster: Cluster & Slotted, base: string): Promise<number | undefined> {
  if (cluster.options?.scaleReads === 'master') return undefined
  const nodes = cluster.nodes()
  for (const key of cluster.slots?.[slotOfKey(base)] ?? []) {
    const node = nodes.find(({ options }) => `${options.host}:${options.port}` === key)
    const time = await withinMs(
      MASTER_WAIT_MS,
      node?.call('time').catch(() => undefined),
    )
    if (time) return Number((time as string[])[0]) * 1_000_000 + Number((time as string[])[1])
  }
  return undefined
}

/** A list of a view: an empty one is an empty object in Lua. */
export function listOf<T>(list: readonly T[]): readonly T[] {
  return Array.isArray(list) ? list : []
}
