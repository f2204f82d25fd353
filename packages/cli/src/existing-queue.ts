import type { ShapedQueue } from 'sluice'
import type { QueueStatus } from 'sluice/inspect'
import { countText, groupKey, plainText, shardOf, shardPrefix } from 'sluice/internal'
import type { ShardedQueue } from 'sluice/sharding'
import { type Cli, CommandError, EXIT_CODES } from './cli.ts'

/**
 * An existing queue, for writes: a mistyped name must not create one.
 * @throws CommandError; also for a sharded queue
 */
export async function existingQueue(cli: Cli, name: string): Promise<ShapedQueue> {
  const shards = await cli.shardsOf(name)
  if (shards === 0) return existingPlain(cli, name)
  throw onlyOneShard(cli, name, shards)
}

/**
 * An existing queue, sharded or not, for writes that concern the whole.
 * @throws CommandError
 */
export async function existingWhole(cli: Cli, name: string): Promise<ShapedQueue | ShardedQueue> {
  const shards = await cli.shardsOf(name)
  return shards === 0 ? existingPlain(cli, name) : cli.shardedQueue(name, shards)
}

/**
 * An existing queue, or all shards of it, to look at them.
 * @throws CommandError
 */
export async function existingParts(cli: Cli, name: string): Promise<readonly ShapedQueue[]> {
  const shards = await cli.shardsOf(name)
  if (shards === 0) return [await existingPlain(cli, name)]
  const prefixes = Array.from({ length: shards }, (_, shard) => shardPrefix(cli.options.prefix, name, shard))
  return Promise.all(prefixes.map((prefix) => cli.queue(name, prefix)))
}

/**
 * An existing queue, or the shard of it that a group is in.
 * @throws CommandError
 */
export async function existingQueueOfGroup(cli: Cli, name: string, id: string): Promise<ShapedQueue> {
  const shards = await cli.shardsOf(name)
  if (shards === 0) return existingPlain(cli, name)
  return cli.queue(name, shardPrefix(cli.options.prefix, name, shardOf(groupKey(id), shards)))
}

async function existingPlain(cli: Cli, name: string): Promise<ShapedQueue> {
  const client = await cli.connection()
  const base = `${cli.options.prefix}:${name}:`
  const found = await Promise.all([client.exists(`${base}meta`), client.exists(`${base}meta:shape`)])
  if (found.every((count) => count === 0)) throw noSuchQueue(cli, name)
  return cli.queue(name)
}

/**
 * The state of an existing queue, from `--read-url` if given.
 * @throws CommandError; also if its node of a cluster did not answer
 */
export async function existingStatus(cli: Cli, name: string): Promise<QueueStatus> {
  const [status] = await cli.inspector().status([name])
  if (!status) throw noSuchQueue(cli, name)
  if (status.unread?.includes('queue')) throw unread(`queue "${plainText(name)}"`)
  return status
}

/**
 * The same, for commands that go by the shape, which a sharded queue has in its head.
 * @throws CommandError
 */
export async function existingWithShape(cli: Cli, name: string): Promise<QueueStatus> {
  const status = await existingStatus(cli, name)
  if (status.unread?.includes('head')) throw unread(`the head of queue "${plainText(name)}"`)
  return status
}

/**
 * The same, for commands that read keys which a sharded queue has only in its shards.
 * @throws CommandError; also for a sharded queue
 */
export async function existingUnsharded(cli: Cli, name: string): Promise<QueueStatus> {
  const status = await existingStatus(cli, name)
  if (status.shards) throw onlyOneShard(cli, name, status.shards.length)
  return status
}

function onlyOneShard(cli: Cli, name: string, shards: number): CommandError {
  const example = shardPrefix(cli.options.prefix, name, 0)
  return new CommandError(
    EXIT_CODES.usage,
    `queue "${plainText(name)}" has ${countText(shards, 'shard')}, and this command works on one of them: give its prefix, such as ` +
      `--prefix '${plainText(example)}'`,
  )
}

function unread(what: string): CommandError {
  return new CommandError(EXIT_CODES.redis, `cannot read ${what}: its node of Redis did not answer`)
}

function noSuchQueue(cli: Cli, name: string): CommandError {
  const { prefix } = cli.options
  return new CommandError(EXIT_CODES.notFound, `no queue "${plainText(name)}" under prefix "${plainText(prefix)}"`)
}
