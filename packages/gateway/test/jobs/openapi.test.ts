import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import { expect, onTestFinished, test } from 'vitest'
import { type RedisProxy, startProxy } from '../../../../test/support/proxy.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { eventsOf } from '../../../../test/worker/support.ts'
import type { QueueRule } from '../../src/jobs/options.ts'
import { MAIL, placeIn, post, startGateway, workerOf } from './support.ts'

interface Operation {
  readonly operationId: string
  readonly parameters?: readonly { readonly name?: string; readonly required?: boolean; readonly $ref?: string }[]
  readonly responses: Readonly<Record<string, Reply>>
}
interface Reply {
  readonly $ref?: string
  readonly headers?: Readonly<Record<string, unknown>>
  readonly content?: Readonly<Record<string, unknown>>
}
interface Description {
  readonly components: { readonly schemas: Readonly<Record<string, object>> }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const identity = { name: 'me', queues: ['plain', 'results'] }
const QUEUES: Readonly<Record<'plain' | 'results', QueueRule>> = {
  plain: { schema: MAIL, shape: { rate: '10/s', capacity: 3 }, maxBodyBytes: 5000 },
  results: {
    ...{ schema: true, shape: { rate: '100/s', capacity: 3 }, maxBodyBytes: 5000 },
    ...{ results: true, maxWaitMs: 5000, idempotency: 'required' as const, allow: ['delay'] as const },
  },
}
const METHODS = ['get', 'post', 'put', 'patch', 'delete', 'options', 'head', 'trace']

async function describe(url: string): Promise<Description> {
  return (await (await fetch(`${url}/openapi.json`)).json()) as Description
}

/** Asks, and holds every answer against the description. */
class Asker {
  readonly seen = new Set<string>()
  readonly #url: string
  readonly #description: Description
  readonly #ajv = formats.default(new Ajv2020({ strict: false }))

  constructor(url: string, description: Description) {
    this.#url = url
    this.#description = description
    this.#ajv.addSchema(description, 'description')
  }

  async ask(path: string, method: string, values: { id?: string } = {}, body?: unknown, headers = {}) {
    const target = `${this.#url}${path.replace('{id}', values.id ?? '')}`
    const response = await (body === undefined ? fetch(target, { method }) : post(target, body, headers))
    const at = `${method} ${path} ${response.status}`
    this.seen.add(at)
    const operation = this.#description.paths[path]?.[method.toLowerCase()] as Operation
    const reply = operation.responses[response.status] as Reply
    expect(reply, `${at} is documented`).toBeDefined()
    const text = await response.text()
    const { content } = this.#resolved(reply)
    if (!content) expect(text, at).toBe('')
    else this.#check(at, content, response.headers.get('content-type') as string, text)
    return JSON.parse(text || '{}') as { id: string }
  }

  #check(at: string, content: Readonly<Record<string, unknown>>, type: string, text: string): void {
    expect(Object.keys(content), at).toEqual([type])
    const { schema } = content[type] as { schema: object }
    const pointed = JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"description#/'))
    const validate = this.#ajv.compile(pointed)
    expect([validate(JSON.parse(text)), validate.errors], `${at}: ${text}`).toEqual([true, null])
  }

  #resolved(reply: Reply): Reply {
    if (!reply.$ref) return reply
    const steps = reply.$ref.slice(2).split('/')
    return steps.reduce((node: unknown, step) => (node as Record<string, unknown>)[step], this.#description) as Reply
  }
}

/** Whose job runs until it is aborted. */
const SLOW = 'slow@example.com'

/** Everything that can be answered of one queue. */
async function askAll(asker: Asker, name: keyof typeof QUEUES, proxy: RedisProxy): Promise<void> {
  const jobs = `/queues/${name}/jobs`
  let keys = 0
  const good = { data: { to: 'a@example.com' } }
  const add = (body: unknown, headers = {}) =>
    asker.ask(jobs, 'POST', {}, body, { 'idempotency-key': `k${keys++}`, ...headers })
  const { id } = await add(good)
  await asker.ask(`${jobs}/{id}`, 'GET', { id })
  await asker.ask(`${jobs}/{id}`, 'GET', { id: 'active' })
  await asker.ask(`${jobs}/{id}`, 'DELETE', { id: 'active' })
  await asker.ask(`${jobs}/{id}`, 'DELETE', { id })
  await asker.ask(`/queues/${name}/meter`, 'GET')
  await add('{')
  await add(good, { 'content-type': 'text/plain' })
  await add({})
  await add(' '.repeat(6000))
  await add([good, good, good])
  await add(good)
  const worker = workerOf(place, name, async ({ data }, _token, signal) => {
    if (data.to !== SLOW) return 'done'
    await new Promise((resolve) => signal?.addEventListener('abort', resolve))
    throw new Error('aborted')
  })
  const active = eventsOf('active', worker)
  const completed = eventsOf('completed', worker)
  await new Promise<void>((resolve) => worker.once('drained', resolve))
  const done = await add(good, { prefer: 'wait=5' })
  if (name === 'plain') await completed.until((jobs) => jobs.some(({ id }) => id === done.id))
  await asker.ask(`${jobs}/{id}`, 'GET', { id: done.id })
  await asker.ask(`${jobs}/{id}`, 'DELETE', { id: done.id })
  const slow = await add({ data: { to: SLOW } })
  await active.until((jobs) => jobs.some(({ id }) => id === slow.id))
  await asker.ask(`${jobs}/{id}`, 'DELETE', { id: slow.id })
  // The first one is still under way when the others come.
  proxy.latency(500)
  await Promise.all([1, 2, 3].map(() => add(good, { 'idempotency-key': 'same' })))
  proxy.latency(0)
  await worker.close()
}

test('every answer is documented, and every answer that is documented is given', async () => {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const { host, port } = proxy
  const open = await startGateway({ ...place, connection: { ...place.connection, host, port } }, QUEUES)
  const description = await describe(open.url)
  const asker = new Asker(open.url, description)
  await asker.ask('/openapi.json', 'GET')
  for (const name of Object.keys(QUEUES) as (keyof typeof QUEUES)[]) await askAll(asker, name, proxy)
  const shut = await startGateway(place, QUEUES, { identity: { ...identity, queues: [] } })
  const refused = new Asker(shut.url, description)
  const closed = new Asker(open.url, description)
  await open.gateway.close()
  for (const path of Object.keys(description.paths)) {
    for (const method of Object.keys(description.paths[path] as object).filter((one) => METHODS.includes(one))) {
      const body = method === 'post' ? { data: 1 } : undefined
      await closed.ask(path, method.toUpperCase(), { id: 'x' }, body)
      if (path !== '/openapi.json') await refused.ask(path, method.toUpperCase(), { id: 'x' }, body)
    }
  }
  const documented = Object.entries(description.paths).flatMap(([path, operations]) =>
    Object.entries(operations)
      .filter(([method]) => METHODS.includes(method))
      .flatMap(([method, { responses }]) =>
        Object.keys(responses).map((one) => `${method.toUpperCase()} ${path} ${one}`),
      ),
  )
  expect([...asker.seen, ...refused.seen, ...closed.seen].filter((one) => !documented.includes(one))).toEqual([])
  expect(documented.filter((one) => ![asker, refused, closed].some(({ seen }) => seen.has(one)))).toEqual([])
})

test('what differs from queue to queue is in its description', async () => {
  const { url } = await startGateway(place, QUEUES, { basePath: '/v1' })
  const description = (await (await fetch(`${url}/v1/openapi.json`)).json()) as Description
  expect(Object.keys(description.paths)).toContain('/v1/queues/plain/jobs/{id}')
  const posts = ['plain', 'results'].map((name) => description.paths[`/v1/queues/${name}/jobs`]?.post as Operation)
  expect(
    posts.map(({ parameters }) => parameters?.map(({ name, $ref, required = false }) => [name ?? $ref, required])),
  ).toEqual([
    [['Idempotency-Key', false]],
    [
      ['Idempotency-Key', true],
      ['#/components/parameters/Prefer', false],
    ],
  ])
  expect(posts.map(({ responses }) => '200' in responses)).toEqual([false, true])
  const [plain, results] = ['NewJob.plain', 'NewJob.results'].map((name) =>
    JSON.stringify(description.components.schemas[name]),
  )
  expect(plain).toContain('"format":"email"')
  expect([plain?.includes('"delay"'), results?.includes('"delay"')]).toEqual([false, true])
  const ids = Object.values(description.paths).flatMap((operations) =>
    Object.values(operations).flatMap(({ operationId }) => operationId ?? []),
  )
  expect(new Set(ids).size).toBe(ids.length)
})

test('the schema of a queue is told as it checks jobs, whatever dialect and name it has', async () => {
  const schemas: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
    'a*b definitions': {
      type: 'object',
      properties: { to: { $ref: '#/$defs/mail', type: 'string', minLength: 3 } },
      ...{ $defs: { mail: { type: 'string', minLength: 1 } }, patternProperties: { '^x-': { const: 1 } } },
    },
    old: {
      ...{ $schema: 'http://json-schema.org/draft-07/schema#', $id: 'urn:example:old', type: 'object' },
      ...{ definitions: { mail: { type: 'string' } }, properties: { to: { $ref: '#/definitions/mail' } } },
    },
  }
  const queues = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, { schema }]))
  const { url } = await startGateway(place, queues)
  const { components, paths } = await describe(url)
  expect(Object.keys(paths)).toContain('/queues/a*b%20definitions/jobs/{id}')
  const told = ['NewJob.a.2a.b.20.definitions', 'NewJob.old'].map((name) => components.schemas[name])
  const expected = Object.values(schemas).map((schema) => ({ properties: { data: schema } }))
  expect(told).toMatchObject(expected)
  const own = await startGateway(place, queues, { identity: { name: 'me', queues: ['old'] } })
  const { components: itsComponents, paths: itsPaths } = await describe(own.url)
  expect(Object.keys(itsComponents.schemas).filter((name) => name.startsWith('NewJob'))).toEqual(['NewJob.old'])
  expect(Object.keys(itsPaths).filter((path) => !path.startsWith('/queues/old/'))).toEqual(['/openapi.json'])
})
