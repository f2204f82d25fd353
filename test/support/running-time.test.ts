import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { RunningTime } from './running-time.ts'

const STOPPED_MS = 700

test('it counts the time that this process runs, and not the time that it stands still', async () => {
  const running = new RunningTime()
  const begunMs = performance.now()
  await sleep(300)
  const ranMs = running.ms
  expect(ranMs).toBeGreaterThan(50)
  expect(ranMs).toBeLessThanOrEqual(performance.now() - begunMs + 1)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, STOPPED_MS)
  expect(running.ms).toBeLessThan(performance.now() - begunMs - STOPPED_MS / 2)
})

test('nor the time that its server does not answer', async () => {
  let answer: () => void = () => {}
  const silence = new Promise<void>((resolve) => {
    answer = resolve
  })
  const running = new RunningTime({ ping: () => silence })
  const begunMs = performance.now()
  await sleep(STOPPED_MS)
  expect(running.ms).toBeLessThan(performance.now() - begunMs - STOPPED_MS / 2)
  const before = running.ms
  answer()
  await expect.poll(() => running.ms).toBeGreaterThan(before + 200)
})
