import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { METHODS, routeOf } from '../../src/jobs/route.ts'
import { placeIn, post, startGateway, told } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)

test.each([
  ['/queues/a/jobs', '', { kind: 'jobs', queueName: 'a' }],
  ['/queues/a%20b/jobs?x=1', '', { kind: 'jobs', queueName: 'a b' }],
  ['/queues/a/meter', '', { kind: 'meter', queueName: 'a' }],
  ['/v1/queues/a/jobs/j', '/v1', { kind: 'job', queueName: 'a', id: 'j' }],
  ['/openapi.json', '', { kind: 'openapi' }],
  ['/queues/%/jobs', '', { kind: 'nothing' }],
  ['/queues/a/jobs/', '', { kind: 'nothing' }],
  ['/queues/a/meter/1', '', { kind: 'nothing' }],
  ['/openapi.json/a', '', undefined],
  ['/', '', undefined],
  ['/queuesa/b/jobs', '', undefined],
  ['/queues/a/jobs', '/v1', undefined],
  ['/v1', '/v1', undefined],
  ['*', '', undefined],
])('%s below %j', (url, basePath, route) => {
  expect(routeOf(url, basePath)).toEqual(route)
})

test.each(['fastify', 'express'] as const)(
  'through %s: the gateway answers for its paths, and lets others pass',
  async (through) => {
    const { url } = await startGateway(place, { mine: { schema: true } }, { through, basePath: '/v1' })
    const accepted = await post(`${url}/v1/queues/mine/jobs`, { data: 1 })
    const { id } = await told(accepted)
    expect(accepted.headers.get('location')).toBe(`/v1/queues/mine/jobs/${id}`)
    expect(await told(fetch(`${url}/v1/queues/mine/jobs/${id}`))).toMatchObject({ status: 200 })
    expect((await fetch(`${url}/v1/queues/mine/jobs/${id}`, { method: 'DELETE' })).status).toBe(204)
    expect(await told(post(`${url}/v1/queues/mine/jobs`, '{'))).toMatchObject({ status: 400, title: 'Bad Request' })
    expect(await told(post(`${url}/v1/queues/mine/jobs`, `"${'a'.repeat(2_000_000)}"`))).toMatchObject({ status: 413 })
    expect(await (await fetch(`${url}/else`)).text()).toBe('from behind the middleware')
    expect((await post(`${url}/queues/mine/jobs`, { data: 1 })).status).toBe(404)
  },
)

test.each(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])(
  '%s only where it is allowed',
  async (method) => {
    const { url } = await startGateway(place, { mine: { schema: true } })
    const paths = {
      jobs: '/queues/mine/jobs',
      job: '/queues/mine/jobs/x',
      meter: '/queues/mine/meter',
      openapi: '/openapi.json',
    }
    for (const [kind, path] of Object.entries(paths)) {
      const allowed = METHODS[kind as keyof typeof METHODS]
      const response = await fetch(`${url}${path}`, { method })
      expect(response.status === 405, `${method} ${path}`).toBe(!allowed.includes(method))
      if (response.status === 405) expect(response.headers.get('allow')).toBe(allowed.join(', '))
      await response.text()
    }
  },
)

test.each(['fastify', 'express'] as const)('through %s: HEAD says of a job what GET says', async (through) => {
  const { url } = await startGateway(place, { mine: { schema: true } }, { through })
  const { id } = await told(post(`${url}/queues/mine/jobs`, { data: 1 }))
  const [get, head] = await Promise.all(
    ['GET', 'HEAD'].map((method) => fetch(`${url}/queues/mine/jobs/${id}`, { method })),
  )
  expect(head?.status).toBe(200)
  expect(head?.headers.get('content-type')).toBe(get?.headers.get('content-type'))
  expect([(await get?.text())?.length, await head?.text()]).toEqual([expect.any(Number), ''])
})

test('a caller has only the queues that are his', async () => {
  const queues = { mine: { schema: true }, other: { schema: true } }
  const { url } = await startGateway(place, queues, { identity: { name: 'me', queues: ['mine', 'elsewhere'] } })
  expect(await told(post(`${url}/queues/mine/jobs`, { data: 1 }))).toMatchObject({ status: 202 })
  expect(await told(post(`${url}/queues/other/jobs`, { data: 1 }))).toMatchObject({ status: 403 })
  expect(await told(fetch(`${url}/queues/other/jobs/x`))).toMatchObject({ status: 403 })
  expect(await told(fetch(`${url}/queues/other/meter`))).toMatchObject({ status: 403 })
  expect(await told(post(`${url}/queues/elsewhere/jobs`, { data: 1 }))).toMatchObject({ status: 404 })
  const { paths } = await told(fetch(`${url}/openapi.json`))
  expect(Object.keys(paths as object).some((path) => path.includes('other'))).toBe(false)
})

test('limits are told in the words that were asked for', async () => {
  const queues = { told: { schema: true, shape: { rate: '90/min', capacity: 5 } } } as const
  const { url } = await startGateway(place, queues, { headers: ['draft-10', 'x-ratelimit'] })
  const { headers } = await post(`${url}/queues/told/jobs`, { data: 1 })
  expect(headers.get('ratelimit-policy')).toBe('"told-admission";q=5, "told-egress";q=90;w=60')
  expect([headers.get('x-ratelimit-limit'), headers.get('x-ratelimit-remaining')]).toEqual(['5', '4'])
})
