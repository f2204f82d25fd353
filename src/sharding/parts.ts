import { Inspector } from '../inspect/inspector.ts'
import type { ShapedQueueOptions } from '../queue/options.ts'
import { ShapedQueue } from '../queue/queue.ts'
import type { Argument, PlainCommands } from '../redis/commands.ts'
import { shardedQueuesKey } from '../redis/keys.ts'
import { headPrefix, shardPrefix } from '../redis/shards.ts'
import type { Shape } from '../shape/shape.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { Part } from './coordinator.ts'
import { shapeOfShard, wholeShape } from './shapes.ts'

/** The part of a queue or worker object that has this store. */
export function partOf(store: ShapeStore): Part {
  return {
    run: (script: string, args: readonly Argument[]) => store.run(script, args),
    recover: async () => {
      if (store.memory.stored) await store.restore()
      else await store.prepared()
    },
  }
}

/** The queue that holds the ledger and the shape of the whole queue. It has no jobs. */
export function openHead(
  name: string,
  options: ShapedQueueOptions,
  shape: Shape | undefined,
  shards: number,
): ShapedQueue {
  const { prefix = 'bull', ...rest } = options
  const whole = shape && wholeShape(shape, shards)
  return new ShapedQueue(name, { ...rest, prefix: headPrefix(prefix, name), ...(whole ? { shape: whole } : {}) })
}

/**
 * Lists the queue for tools that show its shards as one queue. Nothing else depends on it, so no caller waits for it.
 */
export function enlist({ backend }: ShapedQueue, name: string, prefix: string | undefined, shards: number): void {
  backend.client
    .then((client) => (client as unknown as PlainCommands).hset(shardedQueuesKey(prefix ?? 'bull'), name, shards))
    .catch(() => undefined)
}

/** The options of one shard: its prefix, and the shape that it declares. */
export function shardOptions<O extends { prefix?: string }>(
  name: string,
  options: O,
  shape: Shape | undefined,
  shard: number,
  shards: number,
): O & { prefix: string } {
  const declared = shape && shapeOfShard(wholeShape(shape, shards), shards)
  return {
    ...options,
    prefix: shardPrefix(options.prefix ?? 'bull', name, shard),
    ...(declared ? { shape: declared } : {}),
  }
}

/** Reads one shard of a queue. */
export async function inspectorOf(shard: Pick<ShapedQueue, 'backend' | 'opts'>): Promise<Inspector> {
  return new Inspector({ connection: (await shard.backend.client) as never, prefix: shard.opts.prefix as string })
}
