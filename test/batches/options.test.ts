import { expect, test } from 'vitest'
import { InvalidInputError, ShapedQueue, ShapedWorker, UnsupportedOptionError } from '../../src/index.ts'
import { ShardedWorker } from '../../src/sharding/index.ts'

const connection = { host: '127.0.0.1', port: 1 }
const make = (batch: unknown, processor: unknown = async () => {}) =>
  new ShapedWorker('q', processor as never, { connection, batch: batch as never, autorun: false })

const sizes = 'must be a whole number from 1 to 1000; got'

test.each([
  [5, 'batch takes an object of options, of size, minSize, timeoutMs, groupAffinity; got 5'],
  [{}, `batch.size ${sizes} undefined`],
  [{ size: 0 }, `batch.size ${sizes} 0`],
  [{ size: 1001 }, `batch.size ${sizes} 1001`],
  [{ size: '5' }, `batch.size ${sizes} "5"`],
  [{ size: 5, minSize: 1.5, timeoutMs: 1 }, `batch.minSize ${sizes} 1.5`],
  [{ size: 5, minSize: 6, timeoutMs: 1 }, 'batch.minSize must be at most batch.size, which is 5; got 6'],
  [{ size: 5, minSize: 2, timeoutMs: 0 }, 'batch.timeoutMs must be a whole number of ms >= 1; got 0'],
  [
    { size: 5, minSize: 2 },
    'batch.minSize needs batch.timeoutMs: expected how long a batch waits for 2 jobs, ms; got nothing',
  ],
  [
    { size: 5, timeoutMs: 100 },
    'batch.timeoutMs needs batch.minSize: expected a whole number from 2 to 5, without which no batch waits; got 1',
  ],
  [{ size: 5, groupAffinity: 'yes' }, 'batch.groupAffinity must be true or false; got "yes"'],
  [
    { size: 5, timeout: 100 },
    "batch has no option 'timeout'; it has size, minSize, timeoutMs, groupAffinity (did you mean 'timeoutMs'?)",
  ],
])('%j is refused', (batch, message) => {
  let refused: unknown
  try {
    make(batch)
  } catch (error) {
    refused = error
  }
  expect(refused).toBeInstanceOf(InvalidInputError)
  expect((refused as Error).message).toBe(message)
})

test.each([
  ['/processor.js', 'a file'],
  [new URL('file:///processor.js'), 'a file'],
  [null, 'none'],
])('a batch needs a processor function, not %s', (processor, got) => {
  expect(() => make({ size: 5 }, processor)).toThrow(UnsupportedOptionError)
  expect(() => make({ size: 5 }, processor)).toThrow(`batch needs a processor that is a function; got ${got}`)
})

test('queues and workers of shards have no batches', () => {
  expect(() => new ShapedQueue('q', { connection, batch: { size: 5 } } as never)).toThrow(
    "the queue option 'batch' belongs to BullMQ Pro and is not supported; it is an option of the worker",
  )
  const sharded = { connection, shards: 2, concurrency: 2, batch: { size: 5 } } as never
  expect(() => new ShardedWorker('q', async () => {}, sharded)).toThrow(UnsupportedOptionError)
  expect(() => new ShardedWorker('q', async () => {}, sharded)).toThrow('batch is not supported by a worker of shards')
})

test("Pro's older name is refused with the one of today", () => {
  expect(() => new ShapedWorker('q', async () => {}, { connection, batches: { size: 5 } } as never)).toThrow(
    "the worker option 'batches' belongs to BullMQ Pro and is not supported; the worker's option is batch: { size }",
  )
})
