// redis/: how calls reach Redis: clients, commands, failures, keys, Redis's clock, the scripts and BullMQ's texts
// in them, the channel that wakes workers. It must not know what a shape, a job or a worker is.

import type { IRedisTransaction, RedisClient } from 'bullmq'

/** A client of BullMQ: its own wrapper around ioredis, which runs commands defined on it. */
export type Client = RedisClient
export type Transaction = IRedisTransaction
export type ClientOrTransaction = Client | Transaction

/** Commands are called with keys and arguments in one flat list. */
export type Argument = string | number | Buffer | null | undefined

/** Inside a transaction nothing is sent again: its commands are answered together. */
export function isTransaction(client: ClientOrTransaction): client is Transaction {
  return 'exec' in client && typeof client.exec === 'function' && !('status' in client)
}

const MAX_ATTEMPTS = 20

/**
 * Runs a command that calls a script as often as Redis answers that it does not know its text: then nothing has run.
 * ioredis sends the text once; when scripts are flushed under load that is not enough, and a job that succeeded would be
 * recorded as failed.
 * @param read what to make of the reply; in one step with the call, because each step of a promise costs as much
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
