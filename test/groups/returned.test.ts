import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { ShapedQueue } from '../../src/index.ts'
import { lettersOf } from '../failures/support.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'
import { ReferenceGroups } from './model/reference.ts'

// A job that comes back by hand, from the dead letters or from the failed jobs, is the last of its priority in its
// group, from the moment of the call on.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const STORIES = 6

interface Added {
  readonly name: string
  readonly opts: { readonly group?: { readonly id: string; readonly priority?: number } }
}

/** The order in which jobs leave, one by one. */
async function order(queue: ShapedQueue, count: number): Promise<string[]> {
  const worker = shop.worker(queue, null)
  const names: string[] = []
  while (names.length < count) {
    const job = await worker.getNextJob('token')
    if (!job) return names
    names.push(job.name)
    await job.moveToCompleted('done', 'token', false)
  }
  return names
}

/** The same, by start-time fair queueing. */
function expectedOrder(line: readonly Added[]): string[] {
  const model = new ReferenceGroups({}, [], undefined)
  for (const { name, opts } of line) {
    const { id = '', priority = 0 } = opts.group ?? {}
    model.add(id, { id: name, priority, sinceUs: 0, cost: 1, deadlineUs: undefined })
  }
  return line.map(() => {
    const decision = model.depart(0, 0, 0) as { id: string }
    model.finish(decision.id)
    return decision.id
  })
}

function jobsOf(uniform: () => number, name: string, count: number): (Added & { data: object })[] {
  return Array.from({ length: count }, (_, i) => {
    const id = ['a', 'b', 'c', ''][Math.floor(uniform() * 4)] as string
    const priority = Math.floor(uniform() * 3)
    return { name: `${name}${i}`, data: {}, opts: id === '' ? {} : { group: { id, priority } } }
  })
}

async function allFail(queue: ShapedQueue, deadLetter: string, jobs: readonly (Added & { data: object })[]) {
  await queue.addBulk([...jobs])
  const worker = shop.worker(queue, () => Promise.reject(new Error('no')), { deadLetter, concurrency: 1 })
  const failures = eventsOf('failed', worker)
  await failures.reach(jobs.length)
  await worker.close()
  // Finds that no group has jobs: all begin anew.
  expect(await order(queue, 1)).toEqual([])
}

test.each(Array.from({ length: STORIES }, (_, i) => i + 1))(
  'jobs that are redriven and retried by hand leave behind those of their priority in their group: story %i',
  async (seed) => {
    const { uniform } = randomOf(seed * 0x9e3779b9)
    const queue = shop.queue({ groups: {} })
    const letters = lettersOf(shop)
    await allFail(queue, letters.name, jobsOf(uniform, 'failed', 16))
    const line: Added[] = []
    const add = async (name: string) => {
      const jobs = jobsOf(uniform, name, 6)
      await queue.addBulk(jobs)
      line.push(...jobs)
    }
    await add('first')
    const redriven = (await letters.all()).filter(() => uniform() < 0.5)
    await queue.redrive({ from: letters.name, filter: ({ id }) => redriven.some((letter) => letter.id === id) })
    line.push(...redriven.map(({ name, opts }) => ({ name, opts }) as Added))
    await add('second')
    const [one, ...rest] = await queue.getJobs('failed', 0, -1, true)
    await one!.retry()
    line.push(one as Added)
    await add('third')
    await queue.retryJobs({ state: 'failed' })
    line.push(...(rest as Added[]))
    await add('last')
    expect(await order(queue, line.length)).toEqual(expectedOrder(line))
  },
)

test('a redrive waits until its job would start in time by the rate of its group', async () => {
  const queue = shop.queue({ groups: {}, maxWaitMs: 60_000 })
  const letters = lettersOf(shop)
  await allFail(queue, letters.name, [{ name: 'failed', data: {}, opts: { group: { id: 'a' } } }])
  await queue.setGroup('a', { rate: '1/hour' }, { by: 'test', reason: 'test' })
  await queue.add('first', {}, { group: { id: 'a' } })
  const refused = eventsOf('refused', queue)
  const stop = new AbortController()
  const redriving = queue.redrive({ from: letters.name, signal: stop.signal })
  const outcome = await Promise.race([refused.reach(1).then(() => 'refused'), redriving])
  stop.abort(new Error('enough'))
  expect(outcome).toBe('refused')
  await expect(redriving).rejects.toThrow('enough')
  expect(await letters.all()).toHaveLength(1)
  await queue.clearGroup('a', { by: 'test' })
  expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 1 })
})
