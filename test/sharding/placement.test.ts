import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { InvalidInputError } from '../../src/errors.ts'
import { groupKey, headPrefix, shardOf, shardPrefix, slotOfKey } from '../../src/redis/shards.ts'
import { jobIdIn, Placement, placeKey, shardNamedBy } from '../../src/sharding/placement.ts'
import { Permits } from '../../src/sharding/worker.ts'

const KEYS = Array.from({ length: 20_000 }, (_, i) => `group:tenant-${i}`)

test('keys are spread evenly, and only those of the new shard move', () => {
  for (const shards of [2, 3, 6, 7]) {
    const sizes = new Array<number>(shards).fill(0)
    let moved = 0
    for (const key of KEYS) {
      const shard = shardOf(key, shards)
      sizes[shard] = (sizes[shard] as number) + 1
      const later = shardOf(key, shards + 1)
      if (later === shard) continue
      moved += 1
      expect(later).toBe(shards)
    }
    for (const size of sizes) expect(Math.abs(size * shards - KEYS.length)).toBeLessThan(0.08 * KEYS.length)
    expect(Math.abs(moved * (shards + 1) - KEYS.length)).toBeLessThan(0.08 * KEYS.length)
  }
})

test('a group goes before an id, and an id before a deduplication', () => {
  expect(placeKey({ group: { id: 'a' }, jobId: 'b', deduplication: { id: 'c' } })).toBe('group:a')
  expect(placeKey({ jobId: 'b', deduplication: { id: 'c' } })).toBe('b')
  expect(placeKey({ deduplication: { id: 'c' } })).toBe('c')
  expect(placeKey({})).toBeUndefined()
})

test('what all jobs have by default decides as what a job has itself', () => {
  const job = { name: 'job', data: {} }
  const shardFor = (defaults: ShapedJobsOptions, opts?: ShapedJobsOptions) =>
    new Placement(64, undefined, defaults).shardFor({ ...job, opts })
  expect(shardFor({ group: { id: 'a' } })).toBe(shardOf(groupKey('a'), 64))
  expect(shardFor({ group: { id: 'a' } }, { jobId: 'mine' })).toBe(shardOf(groupKey('a'), 64))
  expect(shardFor({ group: { id: 'a' } }, { group: { id: 'b' } })).toBe(shardOf(groupKey('b'), 64))
  expect(shardFor({ deduplication: { id: 'd' } })).toBe(shardOf('d', 64))
  // BullMQ gives no two jobs one id.
  expect(shardFor({ jobId: 'one' })).toBeUndefined()
  expect(shardFor({}, { jobId: '' })).toBeUndefined()
  const byTenant = new Placement(64, ({ opts }) => opts.deduplication?.id.slice(0, 1), { deduplication: { id: 'de' } })
  expect(byTenant.shardFor(job)).toBe(shardOf('d', 64))
})

test('of what placeBy returns only a string is a key', () => {
  for (const wrong of [5, 5n, null, { id: 'a' }, Symbol('a')]) {
    const placement = new Placement(3, () => wrong as never)
    expect(() => placement.shardFor({ name: 'job', data: {} })).toThrow(InvalidInputError)
  }
  expect(new Placement(3, () => undefined).shardFor({ name: 'job', data: {} })).toBeUndefined()
})

test('generated ids name their shard, others do not', () => {
  expect(shardNamedBy(jobIdIn(17))).toBe(17)
  expect(shardNamedBy('17-mine')).toBeUndefined()
  expect(shardNamedBy('mine')).toBeUndefined()
})

test.each([2, 3, 4, 6])('the first shards are on different masters of %i with equal ranges of slots', (masters) => {
  const slots = Array.from({ length: masters }, (_, shard) => slotOf(shardPrefix('bull', 'mail', shard)))
  const found = slots.map((slot) => Math.floor((slot * masters) / 16_384))
  expect(found.toSorted()).toEqual(Array.from({ length: masters }, (_, i) => i))
})

test('braces of the prefix and the name do not put all shards into one slot', () => {
  expect(headPrefix('{bull}', 'mail')).toBe('{bull:mail}')
  expect(shardPrefix('{bull}', 'mail', 0)).toBe(shardPrefix('bull', 'mail', 0))
  const slots = [0, 1, 2].map((shard) => slotOfKey(`${shardPrefix('bull', '{mail}', shard)}:{mail}:wait`))
  expect(new Set(slots).size).toBe(3)
})

test('places of a process: never more in hand than the whole, whatever its workers do', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const { uniform } = randomOf(seed)
    const count = 1 + Math.floor(uniform() * 6)
    const total = count + Math.floor(uniform() * 20)
    const permits = new Permits(total)
    const workers = Array.from({ length: count }, () => ({ concurrency: 1, taken: 0, placesTaken: (): number => 0 }))
    for (const worker of workers) {
      worker.placesTaken = () => worker.taken
      permits.add(worker)
    }
    for (let step = 0; step < 200; step++) {
      for (const worker of workers) {
        const free = worker.concurrency - worker.taken
        if (uniform() < 0.5 && free > 0) worker.taken += 1 + Math.floor(uniform() * free)
        else if (worker.taken > 0) worker.taken -= Math.floor(uniform() * (worker.taken + 1))
      }
      permits.rebalance()
      const held = workers.map(({ concurrency, taken }) => Math.max(concurrency, taken))
      expect(held.reduce((sum, one) => sum + one)).toBeLessThanOrEqual(total)
      expect(Math.min(...workers.map(({ concurrency }) => concurrency))).toBeGreaterThanOrEqual(1)
    }
  }
})

test('the slot of a key is that of its first hash tag, unless that is empty', () => {
  // As CLUSTER KEYSLOT answers.
  const tagged = { '123456789': 12_739, 'a{123456789}b{c}': 12_739, '{user1000}.following': 3443, '}{user1000}': 3443 }
  const whole = { 'foo{}{bar}': 8363, 'foo{bar': 15_278 }
  for (const [key, slot] of Object.entries({ ...tagged, ...whole })) expect(slotOfKey(key)).toBe(slot)
})

/** As in the specification of Redis Cluster: the CRC of what stands between the first braces. */
function slotOf(prefix: string): number {
  const tag = /\{([^}]+)\}/.exec(prefix)?.[1] ?? ''
  let crc = 0
  for (const char of tag) {
    crc ^= char.charCodeAt(0) << 8
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff
  }
  return crc % 16_384
}
