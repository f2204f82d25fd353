import { expect, test } from 'vitest'
import type { AddCall } from '../../src/admission/add-call.ts'
import { BulkClaims } from '../../src/admission/bulk-claims.ts'
import type { Argument } from '../../src/redis/commands.ts'
import type { ShapeStore } from '../../src/shape/store.ts'

/** What is sent of these jobs: cost, terms and number of each that is sent. */
async function claimed(jobs: readonly (readonly [cost: number, terms: string])[]): Promise<unknown[]> {
  const sent: Argument[][] = []
  const run = async (_script: string, args: Argument[]) => {
    sent.push(args)
    return [1, [], 1]
  }
  const store = { memory: { identity: '1:1' }, run } as unknown as ShapeStore
  const calls = jobs.map(([cost, terms], i) => {
    const job = { id: `id-${i}`, hasNewId: true, deduplicationId: '', cost, terms }
    return { script: 'addStandardJob', args: [], job } as unknown as AddCall
  })
  await new BulkClaims(store, 'queue').take('claim', calls)
  const list = sent[0]!.slice(5)
  return Array.from({ length: list.length / 5 }, (_, i) => list.slice(5 * i + 2, 5 * i + 5))
}

test('jobs of a bulk that are alike are sent once, whatever is between them', async () => {
  const [one, two] = [[1, ',1,,'] as const, [1, ',2,,'] as const]
  expect(await claimed([one, two, one, [3, ',1,,'], two, one])).toEqual([
    [1, ',1,,', 3],
    [1, ',2,,', 2],
    [3, ',1,,', 1],
  ])
})

test('with deadlines, only those that follow each other: their order decides when each starts', async () => {
  const [plain, soon] = [[1, ''] as const, [1, ',,,1000'] as const]
  expect(await claimed([plain, plain, soon, plain])).toEqual([
    [1, '', 2],
    [1, ',,,1000', 1],
    [1, '', 1],
  ])
})
