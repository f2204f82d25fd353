import type { IRedisTransaction, RedisClient } from 'bullmq'
import type { Redis } from 'ioredis'

/** BullMQ's client: a wrapper around ioredis that runs commands defined on it. */
export type Client = RedisClient
export type Transaction = IRedisTransaction
export type ClientOrTransaction = Client | Transaction

/** Commands of ioredis that the type of BullMQ's client lacks. */
export type PlainCommands = Pick<Redis, 'sadd' | 'srem' | 'hgetall' | 'hset' | 'hsetnx' | 'hdel' | 'exists' | 'publish'>

/** Commands take keys and arguments in one flat list. */
export type Argument = string | number | Buffer | null | undefined

/** A script as defined on a client, and the number of its keys. */
export interface Command {
  readonly name: string
  readonly keys: number
}

/** A transaction resends no command: its replies arrive together. */
export function isTransaction(client: ClientOrTransaction): client is Transaction {
  return 'exec' in client && typeof client.exec === 'function' && !('status' in client)
}

const MAX_ATTEMPTS = 20

/**
 * Repeats a command that calls a script while Redis replies that it does not know the script: then nothing has run.
 * ioredis sends the text only once, which is not enough if scripts are flushed under load, and a successful job would
 * be recorded as failed.
 * @param read converts the reply; combined with the call because every promise step has a cost
 */
export function untilKnown<T, R = T>(
  run: () => Promise<T>,
  read?: (reply: T) => R | Promise<R>,
  attempt = 1,
): Promise<R> {
  return run().then(read as (reply: T) => R | Promise<R>, (error: unknown) => {
    const unknown = error instanceof Error && error.message.startsWith('NOSCRIPT')
    if (!unknown || attempt === MAX_ATTEMPTS) throw error
    return untilKnown(run, read, attempt + 1)
  })
}

/**
 * An extra key for scripts on a cluster, one that never exists. Scripts use more keys than they declare. While a hash
 * slot moves to another node, a node refuses a call with an absent declared key (TRYAGAIN). So a script never runs
 * where only some of its keys are: it would fail after its first writes, or write keys that the other node has as well.
 * @param last of the keys, so that the absent one has the same hash slot and the same prefix
 */
export function absentKey(last: Argument | undefined): string {
  return `${last}:absent`
}

/** Runs a script that was defined on the client. */
export function runScript<T, R = T>(
  client: Client,
  { name, keys }: Command,
  args: Argument[],
  read?: (reply: T) => R | Promise<R>,
): Promise<R> {
  const all = client.isCluster ? args.toSpliced(keys, 0, absentKey(args[keys - 1])) : args
  return untilKnown(() => client.runCommand(name, all) as Promise<T>, read)
}
