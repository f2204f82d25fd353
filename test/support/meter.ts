import type { Redis } from 'ioredis'
import {
  BUCKET_NUMBERS,
  BUCKET_TEXTS,
  type MeterFields,
  meterFields,
  PACE_NUMBERS,
  PACKED_FIELDS,
} from '../../src/inspect/bucket.ts'

/**
 * The fields of a queue's meter, with the parts of those that hold bytes.
 * @param base prefix of its keys, with its colon
 */
export async function storedMeter(client: Redis, base: string): Promise<MeterFields> {
  const key = `${base}meta:meter`
  const packed = await client.hmgetBuffer(key, ...PACKED_FIELDS)
  const fields = await client.hgetall(key)
  for (const name of PACKED_FIELDS) delete fields[name]
  return meterFields(fields, packed)
}

/** Changes parts of the fields that hold bytes; those that were never stored are 0. */
export async function changeMeter(
  client: Redis,
  base: string,
  changes: Readonly<Record<string, string | number>>,
): Promise<void> {
  const all = { ...(await storedMeter(client, base)), ...changes } as Record<string, string | number>
  const doubles = (names: readonly string[]) => {
    const bytes = Buffer.alloc(names.length * 8)
    for (const [i, name] of names.entries()) bytes.writeDoubleLE(Number(all[name] ?? 0), i * 8)
    return bytes
  }
  const texts = BUCKET_TEXTS.map((name) => `${all[name] ?? ''}\0`).join('')
  const bucket = Buffer.concat([doubles(BUCKET_NUMBERS), Buffer.from(texts)])
  const pace = PACE_NUMBERS.some((name) => name in changes) ? [['pace', doubles(PACE_NUMBERS)]] : []
  const packed = BUCKET_NUMBERS.some((name) => name in all) ? [['bucket', bucket]] : []
  await client.hset(`${base}meta:meter`, ...[...packed, ...pace].flat())
}
