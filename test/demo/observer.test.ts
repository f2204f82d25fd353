import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { followDepartures } from '../../workers/demo/departure-log.ts'
import { Observer } from '../../workers/demo/observer.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const second = 1_000_000

test('the observer adds up the news of several producers', () => {
  const observer = new Observer()
  observer.hear({ email: { accepted: ['a'], refused: 2 }, write: { accepted: [], refused: 0 } })
  observer.hear({ email: { accepted: ['b'], refused: 1 }, write: { accepted: ['c'], refused: 0 } })
  expect(observer.of('email')).toMatchObject({ accepted: ['a', 'b'], refused: 3 })
  expect(observer.of('write')).toMatchObject({ accepted: ['c'], refused: 0 })
  expect(observer.activity).toBe(6)
})

test('departures are counted by complete half seconds of Redis’s clock, whatever ours says', () => {
  const observer = new Observer()
  const redis = 1_760_000_000 * second
  const aheadUs = 3600 * second
  const depart = (queue: string, atUs: number): void =>
    observer.departed(queue, { effectId: 'e', departedAtUs: redis + atUs }, redis + atUs + aheadUs)
  depart('emails', 0)
  depart('db-writes', 0.1 * second)
  depart('emails', 0.4 * second)
  depart('emails', 1.6 * second)
  expect(observer.halfSeconds('email', redis + aheadUs + 1.9 * second)).toEqual([2, 0, 0])
  expect(observer.halfSeconds('email', redis + aheadUs + 2 * second)).toEqual([2, 0, 0, 1])
  expect(observer.halfSeconds('write', redis + aheadUs + 0.6 * second)).toEqual([1])
})

test('there is nothing to draw before the first departure', () => {
  expect(new Observer().halfSeconds('email', Date.now() * 1000)).toEqual([])
})

const line = (effectId: string): string =>
  `${JSON.stringify({
    ...{ queue: 'emails', jobId: '1', effectId, attempt: 1, pid: 1 },
    ...{ departureTimeUs: 5, departedAtUs: 7, latenessUs: 2 },
  })}\n`

test('the log is followed line by line, also when a read ends inside one', async () => {
  const file = join(temporaryFolder(), 'departures.ndjson')
  const log = await followDepartures(file, 'sluice')
  expect(await log.read()).toEqual([])
  appendFileSync(file, line('a') + line('b').slice(0, 20))
  expect(await log.read()).toEqual([
    { queue: 'emails', departure: { effectId: 'a', departureTimeUs: 5, departedAtUs: 7, latenessUs: 2 } },
  ])
  appendFileSync(file, line('b').slice(20))
  expect((await log.read()).map(({ departure }) => departure.effectId)).toEqual(['b'])
  expect(await log.read()).toEqual([])
  await log.close()
})

test('BullMQ’s own workers have starts, but no slots', async () => {
  const file = join(temporaryFolder(), 'departures.ndjson')
  const log = await followDepartures(file, 'bullmq')
  appendFileSync(file, line('a'))
  expect(await log.read()).toEqual([{ queue: 'emails', departure: { effectId: 'a', departedAtUs: 7 } }])
  await log.close()
})
