import { randomUUID } from 'node:crypto'
import type { Redis } from 'ioredis'
import type { ShapeStore } from '../../src/shape/store.ts'

/** Changes fields of a stored shape by hand. Scripts read them again since its digest is another one. */
export async function setShapeFields(client: Redis, key: string, fields: Readonly<Record<string, string | number>>) {
  await client.hset(key, { ...fields, digest: randomUUID() })
}

/** Lets a script load a shape that may write what has ended, as views do not. It finds no job to settle. */
export async function noteEnds(store: ShapeStore): Promise<void> {
  await store.run('settle-cost', ['no job', '1', '{}', '1'])
}
