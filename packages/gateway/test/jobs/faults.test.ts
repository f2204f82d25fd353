import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../../../src/index.ts'
import { dumpQueue } from '../../../../test/faults/support/dump.ts'
import { fillDisk, freeDisk, onDisk, whyNoFullDisk } from '../../../../test/faults/support/full-disk.ts'
import { adminOf, startOwnRedis } from '../../../../test/faults/support/own-redis.ts'
import { startProxy } from '../../../../test/support/proxy.ts'
import { connectionOptions } from '../../../../test/support/redis.ts'
import { RunningTime } from '../../../../test/support/running-time.ts'
import { type Place, post, type StartOptions, startGateway as start, told } from './support.ts'

const QUEUES = { mails: { schema: true, results: true, shape: { rate: '100/s', capacity: 100 } } } as const
const key = { 'idempotency-key': '"one"' }

function placeAt(url: string): Place {
  return { connection: { ...connectionOptions(url), retryStrategy: () => 20 }, prefix: 'bull' }
}

/** With the times for which a gateway waits for Redis. */
const startGateway = (place: Place, queues: Parameters<typeof start>[1], options: StartOptions = {}) =>
  start(place, queues, { patient: false, ...options })

/** Where Redis does answer, also on a busy machine that keeps a gateway waiting for longer. */
async function admitted(jobs: string): Promise<{ readonly id: string }> {
  let answer: Awaited<ReturnType<typeof told>> | undefined
  const status = async () => {
    answer = await told(post(jobs, { data: 1 }, { 'idempotency-key': '"admitted"' }))
    return answer.status
  }
  await expect.poll(status).toBe(202)
  return answer as unknown as { id: string }
}

/** Never "stored", never the caller's fault, and always when to come again. */
async function expectUnavailable(response: Response): Promise<void> {
  expect(response.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
  expect(response.headers.get('content-type')).toBe('application/problem+json')
  const answer = await told(response)
  expect(answer).toMatchObject({ status: 503, 'violated-policies': ['mails-admission'] })
  expect(answer.type).toMatch(/#temporary-reduced-capacity$/)
  // The path has a random id, which can contain any of these.
  const { instance, ...own } = answer
  expect(instance).toMatch(/^\//)
  expect(JSON.stringify(own)).not.toMatch(/127\.0\.0\.1|OOM|BUSY|LOADING|READONLY|ECONN/)
}

// Fault table, row 19.
test('Redis out of memory: 503, nothing half written, and reads still work', async () => {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const { url, errors } = await startGateway(placeAt(service.url), QUEUES)
  const jobs = `${url}/queues/mails/jobs`
  const { id } = await admitted(jobs)
  const before = await dumpQueue(admin, 'bull:mails:')
  await admin.config('SET', 'maxmemory', '1')
  await expectUnavailable(await post(jobs, { data: 2 }))
  await expectUnavailable(await post(jobs, { data: 2 }, key))
  await expectUnavailable(await post(jobs, [{ data: 2 }, { data: 3 }]))
  await expectUnavailable(await post(jobs, [{ data: 2 }, { data: 3 }], { 'idempotency-key': 'two' }))
  expect(await dumpQueue(admin, 'bull:mails:')).toEqual(before)
  await admin.config('SET', 'maxmemory', '0')
  await expect.poll(() => told(fetch(`${jobs}/${id}`))).toMatchObject({ status: 200, state: 'waiting' })
  const then = await post(jobs, { data: 2 }, key)
  expect([then.status, then.headers.get('idempotency-replayed')]).toEqual([202, null])
  expect(errors).toEqual([])
})

const noFullDisk = whyNoFullDisk()

// Fault table, row 39.
test.skipIf(noFullDisk)(
  `Redis's disk is full: 503, and all that was accepted is there after a restart${noFullDisk ? ` (${noFullDisk})` : ''}`,
  async () => {
    const service = await startOwnRedis(onDisk('everysec'))
    const { url, errors } = await startGateway(placeAt(service.url), QUEUES)
    const jobs = `${url}/queues/mails/jobs`
    const ids: unknown[] = [(await admitted(jobs)).id]
    await fillDisk(service, adminOf(service.url))
    // The command that meets the full disk has run: Redis keeps it, and writes it once there is room.
    let answer = await post(jobs, { data: 2 })
    for (; answer.status === 202; answer = await post(jobs, { data: 2 })) ids.push((await told(answer)).id)
    await expectUnavailable(answer)
    await expectUnavailable(await post(jobs, { data: 2 }, key))
    await expectUnavailable(await post(jobs, [{ data: 2 }, { data: 3 }]))
    await expect.poll(() => told(fetch(`${jobs}/${ids[0]}`))).toMatchObject({ status: 200, state: 'waiting' })
    freeDisk(service)
    await expect.poll(async () => (await post(jobs, { data: 2 }, key)).status).toBe(202)
    expect(errors).toEqual([])
    await service.restart()
    for (const id of ids) {
      await expect.poll(() => told(fetch(`${jobs}/${id}`))).toMatchObject({ status: 200, state: 'waiting' })
    }
  },
)

// Fault table, row 21.
test('Redis busy with the script of another client: 503 and no hang; then it resumes', async () => {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const killer = adminOf(service.url)
  const { url } = await startGateway(placeAt(service.url), QUEUES)
  const jobs = `${url}/queues/mails/jobs`
  await admitted(jobs)
  await admin.config('SET', 'busy-reply-threshold', '10')
  const endless = admin.eval('while true do end', 0).catch((error: Error) => error.message)
  await expect.poll(() => killer.ping().catch((error: Error) => error.message)).toMatch(/^BUSY/)
  const running = new RunningTime()
  await expectUnavailable(await post(jobs, { data: 2 }, key))
  await expectUnavailable(await fetch(`${url}/queues/mails/meter`))
  expect(running.ms).toBeLessThan(4000)
  await killer.script('KILL')
  expect(await endless).toMatch(/killed/i)
  await expect.poll(async () => (await post(jobs, { data: 2 }, key)).status).toBe(202)
})

test('Redis read-only: 503', async () => {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const { url } = await startGateway(placeAt(service.url), QUEUES)
  const jobs = `${url}/queues/mails/jobs`
  await admitted(jobs)
  await admin.replicaof('127.0.0.1', '1')
  await expectUnavailable(await post(jobs, { data: 2 }))
  await admin.replicaof('NO', 'ONE')
  await expect.poll(async () => (await post(jobs, { data: 2 })).status).toBe(202)
})

// Fault table, rows 6 and 11.
test.each(['refuse', 'blackhole'] as const)(
  'Redis away (%s): 503 within 2 s on every route; then it resumes',
  async (fault) => {
    const service = await startOwnRedis()
    const proxy = await startProxy(service.url)
    try {
      const place = placeAt(proxy.url)
      const { url, gateway } = await startGateway(
        { ...place, connection: { ...place.connection, socketTimeout: 1500 } as never },
        QUEUES,
      )
      const jobs = `${url}/queues/mails/jobs`
      const { id } = await admitted(jobs)
      await proxy[fault]()
      const running = new RunningTime()
      const answers = await Promise.all([
        post(jobs, { data: 2 }),
        post(jobs, { data: 2 }, key),
        post(jobs, [{ data: 2 }, { data: 3 }]),
        fetch(`${jobs}/${id}`),
        fetch(`${jobs}/${id}`, { method: 'DELETE' }),
        fetch(`${url}/queues/mails/meter`),
      ])
      expect(running.ms).toBeLessThan(2000)
      for (const answer of answers) await expectUnavailable(answer)
      if (fault === 'refuse') await proxy.resume()
      else proxy.restore()
      await expect.poll(async () => (await post(jobs, { data: 2 }, key)).status).toBe(202)
      await proxy.refuse()
      await gateway.close()
    } finally {
      await proxy.stop()
    }
  },
)

test('Redis away at the start: 503, and it goes on once it is there', async () => {
  const service = await startOwnRedis()
  const proxy = await startProxy(service.url)
  await proxy.refuse()
  const { url, gateway } = await startGateway(placeAt(proxy.url), QUEUES, { waits: false })
  const jobs = `${url}/queues/mails/jobs`
  await expectUnavailable(await post(jobs, { data: 1 }))
  await proxy.resume()
  await gateway.waitUntilReady()
  await expect.poll(async () => (await post(jobs, { data: 1 })).status).toBe(202)
  await gateway.close()
  await proxy.stop()
})

// Longer than the gateway waits for Redis otherwise.
const DURABILITY = { replicas: 1, timeoutMs: 1500 }

test('Redis waits for replicas: what stands behind is answered, and a job without them is stored and unconfirmed', async () => {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const queues = { mails: { schema: true, shape: { capacity: 100, durability: DURABILITY } } } as const
  const { url, errors } = await startGateway(placeAt(service.url), queues)
  const jobs = `${url}/queues/mails/jobs`
  const posted = post(jobs, { data: 1 }, key)
  await expect.poll(() => admin.info('clients')).toMatch(/^blocked_clients:1/m)
  expect((await fetch(`${url}/queues/mails/meter`)).status).toBe(200)
  expect(await told(posted)).toMatchObject({ status: 503, mayBeStored: true })
  expect(await admin.llen('bull:mails:wait')).toBe(1)
  expect(errors).toEqual([])
})

test('a stored shape that makes Redis wait longer than the gateway does is reported', async () => {
  const service = await startOwnRedis()
  const ops = new ShapedQueue('mails', {
    connection: connectionOptions(service.url),
    shape: { durability: DURABILITY },
  })
  onTestFinished(() => ops.close())
  await ops.waitUntilReady()
  const { url, errors } = await startGateway(placeAt(service.url), { mails: { schema: true } })
  expect((await fetch(`${url}/queues/mails/meter`)).status).toBe(200)
  expect(errors.map(({ message }) => message)).toEqual([
    expect.stringContaining(
      'queues.mails: durability.timeoutMs is 1500 ms, and the gateway may give up before Redis does',
    ),
  ])
})
