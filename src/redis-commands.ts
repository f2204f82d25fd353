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
