import { expect, onTestFinished, test } from 'vitest'
import { shardedQueuesKey } from '../../../../src/redis/keys.ts'
import { ShardedQueue } from '../../../../src/sharding/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { nameOf } from '../../src/jobs/job-items.ts'
import type { QueueRule } from '../../src/jobs/options.ts'
import type { HttpRequest, Identity } from '../../src/middleware.ts'
import { ProblemError } from '../../src/responses/problem.ts'
import { placeIn, post, queueOf, type StartOptions, startGateway, told, workerOf } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const shape = { rate: '100/s', capacity: 10, groups: { capacity: 2 } }

async function serving(name: string, rule: Partial<QueueRule>, options?: StartOptions) {
  const { url, errors } = await startGateway(place, { [name]: { shape, schema: true, ...rule } }, options)
  return { jobs: `${url}/queues/${name}/jobs`, queue: queueOf(place, name), errors }
}

const request = { identity: undefined, header: () => undefined } as unknown as HttpRequest

test.each<[string, Exclude<QueueRule['group'], undefined>, unknown, string | undefined]>([
  ['a text', { data: '/tenant' }, { tenant: 'acme' }, 'acme'],
  ['a number', { data: '/tenant' }, { tenant: 42 }, '42'],
  ['one inside others', { data: '/to/0/a~1b~0c' }, { to: [{ 'a/b~c': 'acme' }] }, 'acme'],
  ['an empty text', { data: '/tenant' }, { tenant: '' }, undefined],
  ['an object', { data: '/tenant' }, { tenant: { id: 1 } }, undefined],
  ['what objects inherit', { data: '/constructor/name' }, {}, undefined],
  ['no object', { data: '/tenant' }, null, undefined],
  ['the domain of an address', { data: '/to', as: 'mail-domain' }, { to: 'ann@Example.COM' }, 'example.com'],
  ['that of a named address', { data: '/to', as: 'mail-domain' }, { to: '"A@b" <ann@example.com> ' }, 'example.com'],
  ['that of no address', { data: '/to', as: 'mail-domain' }, { to: 'ann' }, undefined],
  [
    'the host of a URL',
    { data: '/url', as: 'url-host' },
    { url: 'HTTPS://API.example.com:8443/a?b@c' },
    'api.example.com:8443',
  ],
  ['that of a URL without one', { data: '/url', as: 'url-host' }, { url: 'mailto:ann@example.com' }, undefined],
  ['that of no URL', { data: '/url', as: 'url-host' }, { url: '/path' }, undefined],
])('the group by %s in the data', (_, rule, data, group) => {
  expect(nameOf(rule, { request, data, at: '' }, 'group')).toBe(group)
  if (group === undefined) {
    const strict = { ...(rule as { data: string }), required: true }
    expect(() => nameOf(strict, { request, data, at: '/3' }, 'group')).toThrow(ProblemError)
    expect(() => nameOf(strict, { request, data, at: '/3' }, 'group')).toThrow(`/3/data${strict.data} names no group`)
  }
})

test.each([
  ['ann@EXAMPLE.com.', 'example.com'],
  ['ann@example.com,', 'example.com'],
  ['<ann@example.com>;', 'example.com'],
  ['ann@example.com (Ann)', 'example.com'],
  ['ann@example.com (ann@other.example)', 'example.com'],
  ['ann@example.com "ann@other.example"', 'example.com'],
  ['"\\"" ann@example.com "(@other.example"', 'example.com'],
  ['ann@bücher.example', 'xn--bcher-kva.example'],
  ['ann@XN--BCHER-KVA.example', 'xn--bcher-kva.example'],
  ['ann@', undefined],
])('a domain is one group, however it is written: %s', (to, group) => {
  expect(nameOf({ data: '/to', as: 'mail-domain' }, { request, data: { to }, at: '' }, 'group')).toBe(group)
})

test.each(['https://example.com./a', 'HTTP://ann:secret@EXAMPLE.com:80'])('a host likewise: %s', (url) => {
  expect(nameOf({ data: '/url', as: 'url-host' }, { request, data: { url }, at: '' }, 'group')).toBe('example.com')
})

test('a key that comes again for another group is a conflict: its job would be lost', async () => {
  const { jobs, queue } = await serving('keys', { group: { header: 'X-Tenant' } })
  const send = (tenant?: string) =>
    told(post(jobs, { data: 1 }, { 'idempotency-key': 'k', ...(tenant && { 'x-tenant': tenant }) }))
  const first = await send('acme')
  expect(await send('acme')).toMatchObject({ status: 202, id: first.id })
  expect(await send('other')).toMatchObject({ status: 422 })
  expect(await send()).toMatchObject({ status: 422 })
  expect((await queue.meter()).depth).toBe(1)
})

test('by a field of the header: the jobs of one request are in one group', async () => {
  const { jobs, queue } = await serving('header', { group: { header: 'X-Tenant' }, allow: ['priority'] })
  const body = [
    { data: 1, opts: { priority: 5 } },
    { data: 2, opts: { priority: 1 } },
  ]
  const { status, jobs: added } = await told(post(jobs, body, { 'x-tenant': ' acme ' }))
  expect({ status, states: (added as { state: string }[]).map(({ state }) => state) }).toEqual({
    status: 202,
    states: ['prioritized', 'prioritized'],
  })
  expect((await told(post(jobs, { data: 3 }))).state).toBe('waiting')
  expect(await queue.getGroupJobsCount('acme')).toBe(2)
  const order: [unknown, string | undefined][] = []
  await new Promise<void>((resolve) => {
    workerOf(place, 'header', async ({ data, opts }) => order.push([data, opts.group?.id])).on('completed', () => {
      if (order.length === 3) resolve()
    })
  })
  expect(order.filter(([, group]) => group === 'acme')).toEqual([
    [2, 'acme'],
    [1, 'acme'],
  ])
  expect(order).toContainEqual([3, undefined])
})

test('a field that is required and missing, and an id that is too long, are mistakes of the caller', async () => {
  const { jobs, queue } = await serving('required', { group: { header: 'X-Tenant', required: true } })
  const missing = await told(post(jobs, { data: 1 }))
  expect(missing).toMatchObject({
    status: 422,
    detail: 'The field X-Tenant is missing: it names the group of the jobs.',
  })
  const long = await told(post(jobs, { data: 1 }, { 'x-tenant': 'a'.repeat(257) }))
  expect(long).toMatchObject({ status: 422, detail: expect.stringContaining('256') })
  expect((await queue.meter()).depth).toBe(0)
})

test('keys of jobs by the token, the header and the data, which callers cannot set', async () => {
  const { jobs, queue } = await serving(
    'named',
    {
      group: 'token',
      keys: { user: 'token', model: { data: '/model', required: true }, region: { header: 'X-Region' } },
      allow: ['keys'],
    },
    { identity: { name: 'ada' } },
  )
  const send = (data: object, keys: object, headers = {}) => told(post(jobs, { data, opts: { keys } }, headers))
  const { id } = await send({ model: 'large' }, { host: 'a.example' }, { 'x-region': 'eu' })
  const { opts } = (await queue.getJob(id as string)) ?? {}
  expect(opts).toHaveProperty('keys', { user: 'ada', model: 'large', region: 'eu', host: 'a.example' })
  expect(await send({}, {})).toMatchObject({ status: 422, detail: "/data/model names no key 'model' of jobs." })
  for (const name of ['user', 'model', 'region', 'group'])
    expect(await send({ model: 'large' }, { [name]: 'x' })).toMatchObject({ status: 422 })
  expect((await queue.meter()).depth).toBe(1)
})

test('an idempotency key that comes again for another key in the header is a conflict', async () => {
  const { jobs } = await serving('keyed', { keys: { region: { header: 'X-Region' } } })
  const send = (region: string) => told(post(jobs, { data: 1 }, { 'idempotency-key': 'k', 'x-region': region }))
  expect(await send('eu')).toMatchObject({ status: 202 })
  expect(await send('eu')).toMatchObject({ status: 202 })
  expect(await send('us')).toMatchObject({ status: 422 })
})

test('by the token: who has none is refused', async () => {
  const ada: Identity = { name: 'ada' }
  const { jobs, queue } = await serving('token', { group: 'token' }, { identity: ada })
  expect(await told(post(jobs, { data: 1 }))).toMatchObject({ status: 202 })
  expect(await queue.getGroupJobsCount('ada')).toBe(1)
  const { jobs: open } = await serving('token', { group: 'token' })
  expect(await told(post(open, { data: 1 }))).toMatchObject({ status: 403 })
  expect((await queue.meter()).depth).toBe(1)
})

test('a full group is 429 with its own policy, and no other group is refused for it', async () => {
  const { jobs, errors } = await serving('full', { group: { data: '/to', as: 'mail-domain' } })
  const mail = (to: string) => post(jobs, { data: { to } })
  await Promise.all([mail('a@full.example'), mail('b@full.example')])
  const refused = await mail('c@full.example')
  expect(refused.status).toBe(429)
  expect(refused.headers.get('ratelimit')).toMatch(/^"full-admission-group";r=0;t=\d+;pk=:[\w+/]+=*:$/)
  expect(await told(refused)).toMatchObject({
    detail: 'The group is full: 2 of 2 places are taken.',
    'violated-policies': ['full-admission-group'],
    limit: 2,
    remaining: 0,
  })
  expect((await mail('a@other.example')).status).toBe(202)
  expect((await mail('c@full.example')).status).toBe(429)
  expect(errors).toEqual([])
})

test('a queue without groups is a mistake of its operator', async () => {
  const { url, errors } = await startGateway(place, { none: { schema: true, group: { header: 'X-Tenant' } } })
  await queueOf(place, 'none').setShape({ rate: '1/s' }, { by: 'ann', reason: 'test' })
  expect(await told(post(`${url}/queues/none/jobs`, { data: 1 }, { 'x-tenant': 'a' }))).toMatchObject({ status: 500 })
  expect(errors.map(({ name }) => name)).toEqual(['NoGroupsError'])
})

test('a sharded queue is a mistake of its operator, too: no worker would take the jobs', async () => {
  const mail = new ShardedQueue('sharded', { ...redis, shards: 2, shape: {} })
  onTestFinished(() => mail.close())
  await mail.waitUntilReady()
  const listed = () => redis.client().hget(shardedQueuesKey(redis.prefix), 'sharded')
  await expect.poll(listed).toBe('2')
  await expect(startGateway(place, { sharded: { schema: true, shape } })).rejects.toThrow(
    'queues.sharded is a sharded queue, and a gateway adds to queues without shards',
  )
  // It wrote nothing of a queue without shards.
  expect(await redis.client().keys(`${redis.prefix}:sharded:*`)).toEqual([])
  expect(await redis.client().smembers(`${redis.prefix}:shaped-queues`)).not.toContain('sharded')
  await mail.obliterate()
})
