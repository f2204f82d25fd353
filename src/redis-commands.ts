import type { IRedisTransaction, RedisClient } from 'bullmq'

/** A client of BullMQ: its own wrapper around ioredis, which runs commands defined on it. */
export type Client = RedisClient
export type Transaction = IRedisTransaction
export type ClientOrTransaction = Client | Transaction

/** Commands are called with keys and arguments in one flat list. */
export type Argument = string | number | Buffer | null | undefined

export function isTransaction(client: ClientOrTransaction): client is Transaction {
  return 'exec' in client && typeof client.exec === 'function' && !('status' in client)
}

const MAX_ATTEMPTS = 20

/**
 * Runs a script as often as Redis answers that it does not know its text: then nothing has run. ioredis sends the text
 * once; when scripts are flushed under load that is not enough, and a job that succeeded would be recorded as failed.
 */
export async function untilKnown<T>(run: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run()
    } catch (error) {
      if (attempt === MAX_ATTEMPTS || !(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error
    }
  }
}

/** Runs a script that was defined on the client. */
export function runScript<T>(client: Client, command: string, args: Argument[]): Promise<T> {
  return untilKnown(() => client.runCommand(command, args) as Promise<T>)
}
