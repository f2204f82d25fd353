import type { Cluster } from 'ioredis'
import { createLimiter, LimiterUnavailableError } from '../../src/limits/index.ts'
import { partControls, partOfKey } from '../../src/limits/spread-keys.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { OwnCluster } from './support/own-cluster.ts'

useConcurrentTests()

const RULE = { name: 'api', rate: '1/h', burst: 5, spread: 'key', timeoutMs: 10_000 } as const
/** Little patience, so that a test sees the end of it. */
const IMPATIENT = { maxRedirections: 2, retryDelayOnTryAgain: 1, retryDelayOnMoved: 1 }
/** The part whose slot moves. */
const MOVED = partOfKey('ada')
const MOVED_CONTROL = partControls('sluice', 'api')[MOVED] as string
const ELSEWHERE = Array.from({ length: 30 }, (_, i) => `user-${i}`).filter((user) => partOfKey(user) !== MOVED)

const take = (client: Cluster, key: string, options: object = {}) =>
  createLimiter(client, { ...RULE, ...options }).take(key)

async function countPassed(client: Cluster, key: string, times: number): Promise<number> {
  let passed = 0
  for (let i = 0; i < times; i++) if ((await take(client, key)).allowed) passed += 1
  return passed
}

test('while the slot of a part moves only its keys are undecided; then each has what it had left', async () => {
  const cluster = await OwnCluster.start()
  const [before, during] = [cluster.connect(), cluster.connect(IMPATIENT)]
  expect(await countPassed(before, 'ada', 2)).toBe(2)
  const place = await cluster.placeOf(MOVED_CONTROL)
  await cluster.beginMove(place)
  await expect(take(during, 'ada')).rejects.toThrow(LimiterUnavailableError)
  for (const user of ELSEWHERE) expect(await countPassed(during, user, 1)).toBe(1)
  await cluster.moveKeys(place)
  await cluster.endMove(place)
  expect(await countPassed(before, 'ada', 9)).toBe(3)
  expect(await countPassed(during, 'ada', 1)).toBe(0)
})

test('what could not be told a part whose slot moves holds for its keys once it is said again', async () => {
  const cluster = await OwnCluster.start()
  const [old, during] = [cluster.connect(), cluster.connect(IMPATIENT)]
  const v1 = createLimiter(old, { ...RULE, version: 1 })
  await v1.take('ada', { cost: 5 })
  await v1.setMode('enforce')
  const place = await cluster.placeOf(MOVED_CONTROL)
  await cluster.beginMove(place)
  await cluster.moveKeys(place, [`${MOVED_CONTROL}:switch`])
  const v2 = createLimiter(during, { ...RULE, burst: 3, version: 2 })
  await expect(v2.take('ada')).rejects.toThrow(LimiterUnavailableError)
  await expect(v2.setMode('off')).rejects.toThrow(LimiterUnavailableError)
  await cluster.moveKeys(place)
  await cluster.endMove(place)

  expect(await v2.take('ada')).toMatchObject({ allowed: false, limit: 3 })
  expect(await v1.take('ada')).toMatchObject({ allowed: false, limit: 3 })
  await v2.setMode('off')
  expect((await v1.take('ada')).allowed).toBe(true)
})
