import { Queue } from 'bullmq'
import type { DeadLetter } from '../../src/index.ts'
import type { Workshop } from '../worker/support.ts'

/** A queue of dead letters, as any tool of BullMQ sees it. */
export interface Letters {
  readonly name: string
  readonly queue: Queue<DeadLetter>
  /** The oldest first. */
  all(): Promise<DeadLetter[]>
}

let made = 0

export function lettersOf(shop: Workshop): Letters {
  made += 1
  const name = `dead${made}`
  const queue = shop.keep(new Queue<DeadLetter>(name, { connection: shop.connection, prefix: shop.prefix }))
  const all = async () => (await queue.getWaiting(0, -1)).map(({ data }) => data)
  return { name, queue, all }
}
