import { expect, test } from 'vitest'
import type { Shape, ShapedQueue, ShapeOverride } from '../../src/index.ts'
import { SETTABLE_FIELDS } from '../../src/shape/shape.ts'
import type { ShapeView } from '../../src/shape/store.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000

type ShapeFields = Readonly<Record<string, string>>

/** Two values of each field: a new field does not compile until it is here. */
const FIELDS: { readonly [F in Exclude<keyof Shape, 'version'>]-?: readonly [Shape[F], Shape[F]] } = {
  rate: ['10/s', '5/s'],
  burst: [3, 2],
  capacity: [100, 50],
  capacityHorizonMs: [60_000, 30_000],
  reservedPlaces: [{ 1: 5 }, { 1: 4 }],
  overflow: ['drop-oldest', 'drop-lowest'],
  overflowTo: ['spill', 'spare'],
  maxWaitMs: [1_000_000, 500_000],
  onClosed: ['refuse', 'wait'],
  concurrency: [9, 8],
  limits: [[{ name: 'day', rate: '1000/day' }], [{ name: 'hour', rate: '100/hour' }]],
  mode: ['enforce', 'shadow'],
  maxLatenessMs: [40, 30],
  horizonMs: [60, 60],
  onStateLoss: ['burst', 'burst'],
  audit: [100, 50],
  groups: [{ rate: '5/s', concurrency: 3 }, { weight: 2 }],
  priorityAgeingMs: [60_000, 30_000],
  rampUp: [
    { from: 0.1, overMs: 60_000 },
    { from: 0.5, overMs: 30_000 },
  ],
  durability: [
    { replicas: 1, timeoutMs: 500 },
    { replicas: 2, timeoutMs: 500 },
  ],
}

const shapeOf = (at: 0 | 1, fields = Object.keys(FIELDS)): Shape =>
  Object.fromEntries(fields.map((field) => [field, FIELDS[field as keyof typeof FIELDS][at]]))

async function stored(queue: ShapedQueue): Promise<ShapeFields> {
  return redis.client().hgetall(queue.toKey('meta:shape'))
}

/** The fields in force, without what tells one change of them from another. */
function inForce({
  rev,
  fits,
  open,
  changedAt,
  groupsAt,
  groupRates,
  rulesAt,
  expires,
  digest,
  declared,
  overrides,
  ...fields
}: ShapeFields): ShapeFields {
  return fields
}

test('each field is stored, and shown as declared', async () => {
  const queue = shop.queue(shapeOf(0))
  const shown = (await queue.getShape()) ?? {}
  expect(Object.keys(shown)).toEqual(expect.arrayContaining(Object.keys(FIELDS)))
  expect(shown).toMatchObject({ ...shapeOf(0), limits: [{ name: 'day' }] })
})

test.each([
  ['as declared', Object.keys(FIELDS)],
  ['absent', []],
])('each field is %s again once its override has ended, for those who only read as well', async (_, fields) => {
  const queue = shop.queue(shapeOf(0, fields))
  await queue.waitUntilReady()
  const declared = inForce(await stored(queue))
  const override = shapeOf(1, [...SETTABLE_FIELDS]) as ShapeOverride
  await queue.setShape(override, { by: 'ops', reason: 'test', ttlMs: HOUR_MS })
  const overridden = await stored(queue)
  for (const field of SETTABLE_FIELDS) expect(overridden[field], field).not.toBe(declared[field])
  const laterUs = (Date.now() + 2 * HOUR_MS) * 1000
  const [later] = (await queue.getBackend().store.run('view', ['shape', '{}', laterUs, ''])) as [string]
  const { shape = {} } = JSON.parse(later) as ShapeView
  expect(inForce(shape)).toEqual(declared)
  expect(await stored(queue)).toEqual(overridden)
  await queue.clearShape()
  expect(inForce(await stored(queue))).toEqual(declared)
})
