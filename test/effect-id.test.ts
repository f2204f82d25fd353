import { expect, test } from 'vitest'
import { effectId } from '../src/effect-id.ts'

const job = { prefix: 'bull', queueName: 'emails', jobId: '1', timestamp: 1_700_000_000_000 }

test('the same job has the same effect id in every process and version', () => {
  expect(effectId(job)).toBe('97e8f00f18e1ff476ac96961a1aaa6fe6f3e2c63ae3d3b4b73354c7853093b84')
})

test.each([
  ['prefix', { ...job, prefix: 'other' }],
  ['queue', { ...job, queueName: 'other' }],
  ['job id', { ...job, jobId: '2' }],
  ['creation time, as after a wipe that starts ids again', { ...job, timestamp: job.timestamp + 1 }],
])('another %s is another effect', (_, other) => {
  expect(effectId(other)).not.toBe(effectId(job))
})

test('parts cannot run into each other', () => {
  const left = effectId({ ...job, prefix: 'a', queueName: 'b:c' })
  expect(left).not.toBe(effectId({ ...job, prefix: 'a:b', queueName: 'c' }))
  expect(left).not.toBe(effectId({ ...job, prefix: 'a","b', queueName: 'c' }))
})
