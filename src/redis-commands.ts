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
 * Runs a script as often as Redis answers that it does not know its text: then nothing has run. ioredis sends the text
 * once; when scripts are flushed under load that is not enough, and a job that succeeded would be recorded as failed.
 */
export function untilKnown<T>(run: () => Promise<T>, attempt = 1): Promise<T> {
  return run().catch((error: unknown) => {
    const unknown = error instanceof Error && error.message.startsWith('NOSCRIPT')
    if (!unknown || attempt === MAX_ATTEMPTS) throw error
    return untilKnown(run, attempt + 1)
  })
}

/** Runs a script that was defined on the client. */
export function runScript<T>(client: Client, command: string, args: Argument[]): Promise<T> {
  return untilKnown(() => client.runCommand(command, args) as Promise<T>)
}
