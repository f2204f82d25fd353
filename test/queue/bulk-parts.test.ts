import { describe, expect, test } from 'vitest'
import type { AddCall } from '../../src/admission/add-call.ts'
import { addedIdsOf, partsOf } from '../../src/admission/bulk-parts.ts'
import { withRestore } from '../../src/admission/restore.ts'
import { QueueFullError, QueueUnavailableError } from '../../src/errors.ts'

/** A job whose own arguments have so many bytes, behind keys that do not count. */
function call(bytes: number): AddCall {
  const third = Math.floor(bytes / 3)
  const own = ['x'.repeat(third), Buffer.alloc(third), 'é'.repeat((bytes - 2 * third) / 2)]
  return { script: 'addStandardJob', args: ['key'.repeat(1000), 'another'.repeat(1000), ...own] } as never
}

describe('a bulk is cut into scripts', () => {
  const sizes = (count: number, bytes: number) =>
    partsOf(Array.from({ length: count }, () => call(bytes))).map((part) => part.length)

  test.each([
    [0, [0]],
    [1, [1]],
    [100, [100]],
    [101, [50, 50, 1]],
    [150, [50, 50, 50]],
  ])('of up to 100 jobs, or 50 if there are more: %i', (count, parts) => {
    expect(sizes(count, 30)).toEqual(parts)
  })

  test('of 512 KiB at most, with a larger job by itself', () => {
    const quarter = 131_072
    expect(sizes(8, quarter)).toEqual([4, 4])
    expect(sizes(4, quarter + 2)).toEqual([3, 1])
    expect(partsOf([call(30), call(1_000_000), call(30), call(30)]).map((part) => part.length)).toEqual([1, 1, 2])
  })
})

test('of a bulk that failed it is known which jobs were added, which were not, and which may have been', () => {
  const parts = Array.from({ length: 5 }, () => [call(3), call(3)])
  const rejected = (reason: Error) => ({ status: 'rejected', reason }) as const
  const ends: PromiseSettledResult<unknown[]>[] = [
    { status: 'fulfilled', value: ['a', new Error('no')] },
    rejected(new QueueFullError('q', { retryAfterMs: 1, depth: 1, capacity: 1, paused: false })),
    rejected(new QueueUnavailableError('q', 'the connection was lost', true)),
    rejected(new Error('Connection is closed.')),
  ]
  expect(addedIdsOf(parts, ends)).toEqual([
    ...['a', undefined],
    ...[undefined, undefined],
    ...[null, null],
    ...[null, null],
    // It was never sent.
    ...[undefined, undefined],
  ])
})

test('a shape that Redis loses is restored three times before an add gives up', async () => {
  let restores = 0
  const store = { base: 'bull:mails:', restore: async () => void restores++ }
  const lost = [-1]
  const replies = [lost, lost, lost, ['stored']]
  expect(
    await withRestore(
      () => store as never,
      async () => replies.shift() as unknown[],
    ),
  ).toEqual(['stored'])
  expect(restores).toBe(3)
  const failed = withRestore(
    () => store as never,
    async () => lost,
  )
  await expect(failed).rejects.toThrow(QueueUnavailableError)
  await expect(failed).rejects.toThrow('its shape was lost 4 times in a row')
  expect(restores).toBe(6)
})
