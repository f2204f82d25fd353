import { expect, test } from 'vitest'
import { useRedis } from '../../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../../worker/support.ts'
import { ears, said, Told } from '../support/told.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
/** Far less than an unanswered probe is waited for. */
const SOON_MS = 5000
const hard = (forMs: number) => new Told({ kind: 'pause', forMs, hard: true, ...said })

test('a probe that is refused softly is followed by another after that pause', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(4))
  let calls = 0
  const worker = shop.worker(
    queue,
    async () => {
      calls += 1
      if (calls === 1) throw hard(200)
      if (calls === 2) throw new Told({ kind: 'pause', forMs: 200, hard: false, ...said })
    },
    { feedback: ears, concurrency: 1 },
  )
  const [completed, departed] = [eventsOf('completed', worker), departuresOf(worker)]
  await completed.reach(4)
  expect(departed.all[2]!.departureTimeUs - departed.all[1]!.departureTimeUs).toBeLessThan(SOON_MS * 1000)
})
