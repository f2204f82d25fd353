import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { effectId } from '../../../src/effect-id.ts'
import { openDepartureLog } from '../src/departure-log.ts'

const directory = mkdtempSync(join(tmpdir(), 'sluice-departures-'))
afterAll(() => rmSync(directory, { recursive: true }))

test('each departure is a line that can be read at once, and several logs share a file', () => {
  const path = join(directory, 'new', 'departures.ndjson')
  const logs = [openDepartureLog(path, 'p'), openDepartureLog(path, 'p')]
  const departure = { departureTimeUs: 1_000_000, departedAtUs: 1_000_250, latenessUs: 250 }
  logs.forEach((log, index) => {
    log.record({ id: `${index}`, queueName: 'emails', timestamp: 7, attemptsStarted: index + 1 }, departure)
  })
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  expect(lines.map((line) => JSON.parse(line))).toEqual(
    [0, 1].map((index) => ({
      queue: 'emails',
      jobId: `${index}`,
      effectId: effectId({ prefix: 'p', queueName: 'emails', jobId: `${index}`, timestamp: 7 }),
      ...departure,
      attempt: index + 1,
      pid: process.pid,
    })),
  )
  for (const log of logs) log.close()
})
