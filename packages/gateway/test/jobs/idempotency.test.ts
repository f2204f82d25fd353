import { expect, test } from 'vitest'
import { startProxy } from '../../../../test/support/proxy.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { placeIn, post, queueOf, startGateway, told } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const headers = { 'idempotency-key': '"8e03978e-40d5-43dd-bc93-6894a57f9324"' }

test('the same request with the same key adds one job, and both get its id', async () => {
  const { url } = await startGateway(place, { once: { schema: true, shape: { rate: '10/s', capacity: 1 } } })
  const jobs = `${url}/queues/once/jobs`
  const first = await post(jobs, { data: 1 }, headers)
  expect(first.headers.get('idempotency-replayed')).toBeNull()
  const { id, ...placed } = await told(first)
  expect(placed).toMatchObject({ status: 202, state: 'waiting', position: 0 })
  // The queue is full by now.
  const again = await post(jobs, { data: 1 }, headers)
  expect(again.headers.get('idempotency-replayed')).toBe('true')
  expect(again.headers.get('location')).toBe(`/queues/once/jobs/${id}`)
  expect(await told(again)).toMatchObject({ status: 202, id, state: 'waiting' })
  const bare = { 'idempotency-key': headers['idempotency-key'].replaceAll('"', '') }
  expect(await told(post(jobs, { data: 1 }, bare))).toMatchObject({ status: 202, id })
  expect(await queueOf(place, 'once').getWaitingCount()).toBe(1)
  await fetch(`${jobs}/${id}`, { method: 'DELETE' })
  expect(await told(post(jobs, { data: 1 }, headers))).toMatchObject({ status: 202, id, state: 'removed' })
})

// Fault table, row 5.
test('the same key with another body: 422, and nothing is stored', async () => {
  const { url } = await startGateway(place, { other: { schema: true } })
  const jobs = `${url}/queues/other/jobs`
  await post(jobs, '{"data":1}', headers)
  expect(await told(post(jobs, '{"data": 1}', headers))).toMatchObject({ status: 422 })
  expect(await told(post(jobs, '[{"data":1}]', headers))).toMatchObject({ status: 422 })
  expect(await queueOf(place, 'other').getWaitingCount()).toBe(1)
})

test('a key belongs to its caller and its queue', async () => {
  const queues = { left: { schema: true }, right: { schema: true } }
  const one = await startGateway(place, queues, { identity: { name: 'one' } })
  const two = await startGateway(place, queues, { identity: { name: 'two' } })
  const nobody = await startGateway(place, queues)
  const answers = [
    await told(post(`${one.url}/queues/left/jobs`, { data: 1 }, headers)),
    await told(post(`${one.url}/queues/right/jobs`, { data: 2 }, headers)),
    await told(post(`${two.url}/queues/left/jobs`, { data: 3 }, headers)),
    await told(post(`${nobody.url}/queues/left/jobs`, { data: 4 }, headers)),
  ]
  expect(answers.map(({ status }) => status)).toEqual([202, 202, 202, 202])
  expect(new Set(answers.map(({ id }) => id)).size).toBe(4)
})

test('many at once with one key: one job; who is not told its id is told to come again', async () => {
  const queues = { raced: { schema: true, shape: { capacity: 10 } } }
  const gateways = [await startGateway(place, queues), await startGateway(place, queues)]
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, i) => post(`${gateways[i % 2]?.url}/queues/raced/jobs`, { data: 1 }, headers)),
  )
  const bodies = await Promise.all(answers.map((answer) => told(answer)))
  expect(bodies.every(({ status }) => status === 202 || status === 409)).toBe(true)
  expect(new Set(bodies.flatMap(({ id }) => id ?? [])).size).toBe(1)
  const busy = answers.find(({ status }) => status === 409)
  if (busy) expect(busy.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
  expect(await queueOf(place, 'raced').getWaitingCount()).toBe(1)
})

test('required and missing: 400; an array has one key for all its jobs', async () => {
  const { url } = await startGateway(place, { needed: { schema: true, idempotency: 'required' } })
  const jobs = `${url}/queues/needed/jobs`
  expect(await told(post(jobs, { data: 1 }))).toMatchObject({ status: 400 })
  const body = [{ data: 1 }, { data: 2 }, { data: 3 }]
  const [first, again] = [await told(post(jobs, body, headers)), await told(post(jobs, body, headers))]
  const ids = (answer: Record<string, unknown>) => (answer.jobs as { id: string }[]).map(({ id }) => id)
  expect(new Set(ids(first)).size).toBe(3)
  expect(ids(again)).toEqual(ids(first))
  for (const id of ids(first)) expect(await told(fetch(`${jobs}/${id}`))).toMatchObject({ state: 'waiting' })
})

test('a refusal keeps no key', async () => {
  const { url } = await startGateway(place, { small: { schema: true, shape: { capacity: 1 } } })
  const jobs = `${url}/queues/small/jobs`
  const { id } = await told(post(jobs, { data: 0 }))
  expect(await told(post(jobs, { data: 1 }, headers))).toMatchObject({ status: 429 })
  await fetch(`${jobs}/${id}`, { method: 'DELETE' })
  const then = await post(jobs, { data: 1 }, headers)
  expect([then.status, then.headers.get('idempotency-replayed')]).toEqual([202, null])
})

// Fault table, rows 3 and 4: the answer of the script is lost, and the caller asks again with the same key.
test.each([1, 3])('the answer of Redis is lost: 503, then the id of the one job (%i jobs)', async (count) => {
  const proxy = await startProxy(redis.url)
  try {
    const connection = { ...place.connection, host: proxy.host, port: proxy.port, retryStrategy: () => 20 }
    const name = `lost-${count}`
    const { url } = await startGateway({ ...place, connection }, { [name]: { schema: true, shape: { capacity: 10 } } })
    const jobs = `${url}/queues/${name}/jobs`
    const body = count === 1 ? { data: 1 } : Array.from({ length: count }, (_, i) => ({ data: i }))
    // So that the script is known, and its call is the command that is answered.
    await post(jobs, body, { 'idempotency-key': 'before' })
    const lost = proxy.dropReplyOf(
      ([command, , , ...rest]) => /^(eval|fcall)/i.test(command as string) && rest.some((one) => one.includes('j_')),
    )
    const failed = await post(jobs, body, headers)
    await lost
    expect(failed.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
    expect(await told(failed)).toMatchObject({ status: 503, mayBeStored: true })
    const again = await post(jobs, body, headers)
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([202, 'true'])
    expect(await queueOf(place, name).getWaitingCount()).toBe(2 * count)
  } finally {
    await proxy.stop()
  }
})
