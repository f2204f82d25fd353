import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

const JOBS = 20

/** What makes Redis refuse everything that writes, and what ends that. */
interface Refusal {
  begin(admin: Redis): Promise<unknown>
  end(admin: Redis): Promise<unknown>
}

const refusals: Record<string, Refusal> = {
  READONLY: {
    begin: (admin) => admin.call('REPLICAOF', '127.0.0.1', '1'),
    end: (admin) => admin.call('REPLICAOF', 'NO', 'ONE'),
  },
  BUSY: {
    begin: async (admin) => {
      await admin.config('SET', 'busy-reply-threshold', '20')
      const busy = admin.duplicate()
      busy.on('error', () => {})
      busy.eval('while true do end', 0).then(undefined, () => busy.disconnect())
      while (!(await admin.ping().catch((error: Error) => error.message)).startsWith('BUSY'));
    },
    end: async (admin) => {
      await admin.call('SCRIPT', 'KILL')
      // It goes on refusing until the script has noticed.
      while ((await admin.ping().catch((error: Error) => error.message)) !== 'PONG');
    },
  },
}

/** Jobs that run while Redis begins to refuse, and end before it is over. */
async function endWhileRefused(
  { begin, end }: Refusal,
  { shape, lockDuration, fails = false }: { shape: object; lockDuration: number; fails?: boolean },
) {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape })
  const opts = fails ? { attempts: 2, backoff: 10 } : {}
  const ids = idsOf(await queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: {}, opts }))))
  const runs = new Map<string, number>()
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  fleet.worker('mail', { connection, concurrency: JOBS, lockDuration, stalledInterval: 200 }, async ({ id }) => {
    runs.set(id as string, (runs.get(id as string) ?? 0) + 1)
    await opened
    if (fails && runs.get(id as string) === 1) throw new Error('once')
  })
  await fleet.until(() => fleet.departures.length === JOBS)
  await begin(admin)
  open()
  await fleet.until(() => fleet.errors.filter(({ error }) => /^(READONLY|BUSY)/.test(error.message)).length >= JOBS)
  return { admin, fleet, queue, runs, ids, over: () => end(admin) }
}

describe.each(Object.entries(refusals))('Redis answers %s to jobs that end', (_name, refusal) => {
  test.each([
    ['under a rate', { rate: '1000/s', burst: JOBS }],
    ['without one', { capacity: 1000 }],
  ])('each end is stored once Redis serves again, and no job runs twice (%s)', async (_what, shape) => {
    const { fleet, queue, runs, ids, over } = await endWhileRefused(refusal, { shape, lockDuration: 30_000 })
    await over()
    await fleet.until(() => fleet.completed.length === JOBS)
    expect(fleet.failed).toEqual([])
    expect([...runs.values()]).toEqual(ids.map(() => 1))
    expect(await queue.getJobCounts('completed', 'failed', 'active')).toEqual({ completed: JOBS, failed: 0, active: 0 })
  })

  test('also where the locks are over by then, as long as nobody else has the jobs', async () => {
    const shape = { rate: '1000/s', burst: JOBS }
    const { admin, fleet, queue, runs, ids, over } = await endWhileRefused(refusal, { shape, lockDuration: 30_000 })
    await over()
    await Promise.all(ids.map((id) => admin.del(`${queue.toKey(id)}:lock`)))
    await fleet.until(() => fleet.completed.length === JOBS)
    expect([...runs.values()]).toEqual(ids.map(() => 1))
  })

  test('a failure that is to be tried again is', async () => {
    const shape = { rate: '1000/s', burst: JOBS }
    const { fleet, queue, runs, ids, over } = await endWhileRefused(refusal, {
      shape,
      lockDuration: 30_000,
      fails: true,
    })
    await over()
    await fleet.until(() => fleet.completed.length === JOBS)
    expect([...runs.values()]).toEqual(ids.map(() => 2))
    expect(await queue.getJobCounts('completed', 'failed', 'active')).toEqual({ completed: JOBS, failed: 0, active: 0 })
  })
})
