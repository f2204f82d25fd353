import type { Redis } from 'ioredis'

/** The fields of the hash `…:meta:meter` that are set, and by their names the parts of those that hold bytes. */
export type MeterFields = Readonly<Record<string, string>>

/** The doubles of the field `bucket`, in their order; two texts follow, each with a zero behind it (`lua/meter/meter.lua`). */
const BUCKET_NUMBERS: readonly string[] = [
  ...['origin', 'tat', 'last', 'seen', 'interval', 'burst', 'horizon', 'horizonAt', 'meanCost', 'seq', 'steps'],
  'lossAt',
]
const BUCKET_TEXTS = ['run', 'mode'] as const
/** Those of the field `pace` (`lua/meter/pace.lua`); `leftAt` is the last departure of a queue without a rate, µs. */
export const PACE_NUMBERS: readonly string[] = [
  ...['from', 'base', 'next', 'count', 'leftAt', 'ahead', 'late', 'runUs', 'offUs'],
]
const BYTES = 8

/** The two fields that hold bytes, in the order of {@link meterFields}. */
const PACKED_FIELDS = ['bucket', 'pace'] as const

function meterFields(fields: MeterFields, [bucket, pace]: readonly (Buffer | null | undefined)[]): MeterFields {
  const all: Record<string, string> = { ...fields }
  const read = (names: readonly string[], bytes: Buffer) => {
    for (const [i, name] of names.entries()) all[name] = String(bytes.readDoubleLE(i * BYTES))
  }
  if (pace) read(PACE_NUMBERS, pace)
  if (!bucket) return all
  read(BUCKET_NUMBERS, bucket)
  const texts = bucket.toString('latin1', BUCKET_NUMBERS.length * BYTES).split('\0')
  for (const [i, name] of BUCKET_TEXTS.entries()) all[name] = texts[i] as string
  return all
}

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
