import { randomUUID } from 'node:crypto'
import type { Redis } from 'ioredis'

/** Changes fields of a stored shape by hand. Scripts read them again since its digest is another one. */
export async function setShapeFields(client: Redis, key: string, fields: Readonly<Record<string, string | number>>) {
  await client.hset(key, { ...fields, digest: randomUUID() })
}
