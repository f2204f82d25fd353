import { readFileSync } from 'node:fs'
import { ShapedQueue } from '../../../src/index.ts'
import type { TestRedis } from '../../../test/support/redis.ts'
import type { DepartureRecord } from '../src/departure-log.ts'

/** A queue for as long as it is used. */
export async function withQueue(
  { connection, prefix }: Pick<TestRedis, 'connection' | 'prefix'>,
  name: string,
  use: (queue: ShapedQueue) => Promise<void>,
): Promise<void> {
  const queue = new ShapedQueue(name, { connection, prefix })
  try {
    await use(queue)
  } finally {
    await queue.close()
  }
}

/** The lines of a program's departure log. */
export function departuresIn(file: string): DepartureRecord[] {
  const lines = readFileSync(file, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as DepartureRecord)
}
