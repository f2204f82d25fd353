// redis/: how calls reach Redis: clients, commands, failures, keys, Redis's clock, the scripts and BullMQ's texts in
// them, the channel that wakes workers. It must not know what a shape, a job or a worker is.

import type { IRedisTransaction, RedisClient } from 'bullmq'

/** BullMQ's client: a wrapper around ioredis that runs commands defined on it. */
export type Client = RedisClient
export type Transaction = IRedisTransaction
export type ClientOrTransaction = Client | Transaction

/** Commands take keys and arguments in one flat list. */
export type Argument = string | number | Buffer | null | undefined

/** In a transaction no command is resent: its replies arrive together. */
export function isTransaction(client: ClientOrTransaction): client is Transaction {
  return 'exec' in client && typeof client.exec === 'function' && !('status' in client)
}

const MAX_ATTEMPTS = 20

/**
 * Repeats a command that calls a script while Redis replies that it does not know the script: then nothing has run.
 * ioredis sends the text only once, which is not enough if scripts are flushed under load, and a job that succeeded
 * would be recorded as failed.
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

/** Runs a script that was defined on the client. */
export function runScript<T, R = T>(
  client: Client,
  command: string,
  args: Argument[],
  read?: (reply: T) => R | Promise<R>,
): Promise<R> {
  return untilKnown(() => client.runCommand(command, args) as Promise<T>, read)
}
