import { connect as connectHttp2, type Http2Server } from 'node:http2'
import type { AddressInfo } from 'node:net'
import express from 'express'
import Fastify from 'fastify'
import { expect, onTestFinished, test, vi } from 'vitest'
import { fastifyHook, fastifyMiddleware } from '../../src/adapters/fastify.ts'
import { fetchMiddleware } from '../../src/adapters/fetch.ts'
import { connectMiddleware } from '../../src/adapters/node.ts'
import { call } from './support/callers.ts'
import { expectCalls, middlewareOf, turnstile } from './support/middleware.ts'
import { fetchRuntime, listen } from './support/servers.ts'

const token = () =>
  middlewareOf((request) => {
    request.identity = { name: 'joe' }
    return { headers: { ratelimit: '"a";r=1', vary: 'authorization' } }
  })
const next = () => middlewareOf(() => ({ headers: { ratelimit: '"b";r=2' } }))

test('Fastify: a plugin guards its scope and those within, and what is not found; a hook guards one route', async () => {
  const [outer, inner, one] = [turnstile(), turnstile(), turnstile()]
  const app = Fastify()
  onTestFinished(() => app.close())
  app.get('/open', async () => 'open')
  await app.register(async (scope) => {
    scope.get('/outer', async () => 'outer')
    await scope.register(fastifyMiddleware(outer))
    scope.get('/one', { onRequest: fastifyHook(one) }, async () => 'one')
    await scope.register(async (within) => {
      await within.register(fastifyMiddleware(inner))
      within.get('/inner', async () => 'inner')
    })
    scope.setNotFoundHandler((_request, reply) => reply.code(404).send('nothing'))
  })
  const counts = async (path: string) => {
    const before = [outer, inner, one].map(({ came }) => came.length)
    const { payload } = await app.inject(path)
    return [payload, ...[outer, inner, one].map(({ came }, i) => came.length - (before[i] as number))]
  }
  expect(await counts('/open')).toEqual(['open', 0, 0, 0])
  expect(await counts('/outer')).toEqual(['outer', 1, 0, 0])
  expect(await counts('/inner')).toEqual(['inner', 1, 1, 0])
  expect(await counts('/one')).toEqual(['one', 1, 0, 1])
  expect(await counts('/nowhere')).toEqual(['nothing', 1, 0, 0])
  await expectCalls(outer.leave, 4)
})

test('Fastify: its parsers, its own limit of bodies and its error handler work as they did', async () => {
  const app = Fastify({ bodyLimit: 20 })
  onTestFinished(() => app.close())
  await app.register(
    fastifyMiddleware(
      middlewareOf(async (request) => ({ headers: { 'x-bytes': `${(await request.body()).length}` } })),
    ),
  )
  app.post('/', async ({ body }) => ({ got: body }))
  app.get('/breaks', async () => {
    throw Object.assign(new Error('broken'), { statusCode: 418 })
  })
  const origin = await app.listen({ host: '127.0.0.1', port: 0 })
  const json = { method: 'POST', headers: { 'content-type': 'application/json' } }
  expect(await call(origin, json, ['{"a":', '1}'])).toMatchObject({
    body: '{"got":{"a":1}}',
    headers: { 'x-bytes': '7' },
  })
  expect(await call(origin, json, ['{"a":'])).toMatchObject({ status: 400 })
  expect(await call(origin, json, ['"twenty-two characters"'])).toMatchObject({ status: 413 })
  const other = { method: 'POST', headers: { 'content-type': 'image/png' } }
  expect(await call(origin, other, ['x'])).toMatchObject({ status: 415 })
  expect(await call(`${origin}/breaks`)).toMatchObject({ status: 418, headers: { 'x-bytes': '0' } })
})

test('Fastify: middleware of several plugins knows one request, and lists of fields are joined', async () => {
  const [first, second] = [token(), next()]
  const app = Fastify()
  onTestFinished(() => app.close())
  await app.register(fastifyMiddleware(first))
  await app.register(fastifyMiddleware(second))
  app.get('/', async () => 'passed')
  const { headers } = await app.inject('/')
  expect(headers).toMatchObject({ ratelimit: '"a";r=1, "b";r=2' })
  expect(second.came[0]).toBe(first.came[0])
})

test('Fastify over HTTP/2: answers, fields, leaving, and callers who go', async () => {
  const middleware = turnstile({ headers: { 'x-one': '1' } })
  const app = Fastify({ http2: true })
  await app.register(fastifyMiddleware(middleware))
  app.get('/', async () => 'passed')
  app.get('/never', () => new Promise(() => {}))
  await app.listen({ host: '127.0.0.1', port: 0 })
  const session = connectHttp2(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}`)
  onTestFinished(async () => {
    session.destroy()
    await app.close()
  })
  const headers = await new Promise((resolve) => session.request({ ':path': '/' }).on('response', resolve).resume())
  expect(headers).toMatchObject({ ':status': 200, 'x-one': '1' })
  await expectCalls(middleware.leave, 1)
  const gone = session.request({ ':path': '/never' })
  gone.on('error', () => {})
  await expect.poll(() => middleware.came).toHaveLength(2)
  const { signal } = middleware.came[1] as (typeof middleware.came)[0]
  gone.close(8)
  await expectCalls(middleware.leave, 2)
  expect(signal.aborted).toBe(true)
})

test('Fastify over HTTP/2: a middleware reads bodies, and those that break off are nobody’s', async () => {
  const read: unknown[] = []
  const middleware = middlewareOf(async (request) => {
    const body = await request.body().catch((error: unknown) => {
      read.push(error)
      throw error
    })
    read.push(Buffer.from(body).toString())
    return { response: { status: 202, headers: {} } }
  })
  const app = Fastify({ http2: true })
  app.post('/', { onRequest: fastifyHook<Http2Server>(middleware) }, async () => 'passed')
  await app.listen({ host: '127.0.0.1', port: 0 })
  const session = connectHttp2(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}`)
  onTestFinished(async () => {
    session.destroy()
    await app.close()
  })
  const post = { ':path': '/', ':method': 'POST' }
  for (const body of ['hello', '']) {
    const request = session.request(post)
    const headers = new Promise((resolve) => request.on('response', resolve).resume())
    request.end(body)
    expect(await headers).toMatchObject({ ':status': 202 })
  }
  expect(read).toEqual(['hello', ''])
  const broken = session.request(post)
  broken.on('error', () => {})
  broken.write('hel')
  await expect.poll(() => middleware.came).toHaveLength(3)
  // Its connection breaks: to close a stream, this client would end the body first.
  session.destroy()
  await expect.poll(() => read[2]).toMatchObject({ name: 'CallerGoneError' })
})

test('bodies are as long as the middleware allows that reads them, whatever a middleware before it allows', async () => {
  const reader = middlewareOf(async (request) => ({ headers: { 'x-bytes': `${(await request.body()).length}` } }))
  const app = express()
  app.use(connectMiddleware(turnstile(), { maxBodyBytes: 1 }), connectMiddleware(reader, { maxBodyBytes: 5 }))
  app.use((_req, res) => void res.send('passed'))
  const fetched = fetchMiddleware(
    turnstile(),
    fetchMiddleware(reader, () => new Response('passed'), { maxBodyBytes: 5 }),
    { maxBodyBytes: 1 },
  )
  for (const origin of [await listen(app), await listen(fetchRuntime(fetched))]) {
    expect(await call(origin, { method: 'POST' }, ['hello'])).toMatchObject({
      status: 200,
      headers: { 'x-bytes': '5' },
    })
    expect((await call(origin, { method: 'POST' }, ['hello!'])).status).toBe(413)
  }
})

test('Express: behind a path the url is whole, middleware knows one request, and lists of fields are joined', async () => {
  const [first, second] = [token(), next()]
  const app = express()
  app.use('/api', connectMiddleware(first))
  app.get('/api/here', connectMiddleware(second), (_req, res) => void res.send('passed'))
  const origin = await listen(app)
  const said = await call(`${origin}/api/here?a=b`)
  expect(said).toMatchObject({ headers: { ratelimit: '"a";r=1, "b";r=2', vary: 'authorization' }, body: 'passed' })
  expect(first.came[0]?.url).toBe('/api/here?a=b')
  expect(second.came[0]).toBe(first.came[0])
  expect(second.came[0]?.identity).toEqual({ name: 'joe' })
})

test('Fetch: middleware knows one request, lists of fields are joined, and answers that can not be changed are copied', async () => {
  const [first, second] = [token(), next()]
  const handler = fetchMiddleware(
    first,
    fetchMiddleware(second, () => Response.redirect('http://localhost/there', 303)),
  )
  const response = await handler(new Request('http://localhost/here'))
  expect(response.status).toBe(303)
  expect(Object.fromEntries(response.headers)).toMatchObject({
    location: 'http://localhost/there',
    ratelimit: '"b";r=2, "a";r=1',
  })
  expect(second.came[0]).toBe(first.came[0])
})

test('Fetch: the handler gets what the runtime gives, and who asks is found there', async () => {
  const middleware = turnstile()
  const given: unknown[] = []
  const handler = (_request: Request, env: { ip: string }, context: string) => {
    given.push(env, context)
    return new Response('passed')
  }
  const guarded = fetchMiddleware(middleware, handler, { remoteAddress: (_request, env) => env.ip })
  expect(await (await guarded(new Request('http://localhost/'), { ip: '203.0.113.7' }, 'context')).text()).toBe(
    'passed',
  )
  expect(given).toEqual([{ ip: '203.0.113.7' }, 'context'])
  expect(middleware.came[0]?.remoteAddress).toBe('203.0.113.7')
})

test('Fetch: an answer is left when it was read, is not wanted, or has nothing to read', async () => {
  const middleware = turnstile()
  let answer = new Response('a body')
  const guarded = fetchMiddleware(middleware, () => answer)
  const ask = (options: RequestInit = {}) => guarded(new Request('http://localhost/', options))
  const read = await ask()
  await expectCalls(middleware.leave, 0)
  expect(await read.text()).toBe('a body')
  await expectCalls(middleware.leave, 1)
  answer = new Response(new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(9)) }), {
    status: 203,
  })
  const unwanted = await ask()
  expect(unwanted.status).toBe(203)
  await expectCalls(middleware.leave, 1)
  await unwanted.body?.cancel()
  await expectCalls(middleware.leave, 2)
  answer = new Response(null, { status: 204 })
  expect((await ask()).status).toBe(204)
  await expectCalls(middleware.leave, 3)
  answer = new Response('a body')
  await ask({ method: 'HEAD' })
  await expectCalls(middleware.leave, 4)
  const controller = new AbortController()
  answer = new Response('a body')
  await ask({ signal: controller.signal })
  controller.abort()
  await expectCalls(middleware.leave, 5)
})

test('Fetch: whoever has gone by the time that he may pass gets to nobody', async () => {
  const controller = new AbortController()
  const behind = vi.fn(() => new Response('passed'))
  const guarded = fetchMiddleware(
    middlewareOf(() => {
      controller.abort()
      return {}
    }),
    behind,
  )
  expect((await guarded(new Request('http://localhost/', { signal: controller.signal }))).status).toBe(499)
  expect(behind).not.toHaveBeenCalled()
})

test('Fetch: an answer that breaks off is no whole one', async () => {
  const middleware = turnstile()
  const broken = new ReadableStream({ pull: (controller) => controller.error(new Error('broken')) })
  const response = await fetchMiddleware(middleware, () => new Response(broken))(new Request('http://localhost/'))
  await expect(response.text()).rejects.toThrow('broken')
  await expectCalls(middleware.leave, 1)
})

test('Fetch: a long answer goes through a middleware piece by piece', async () => {
  const middleware = turnstile()
  const pieces = ['one ', 'two ', 'three']
  const body = () =>
    new ReadableStream({
      pull(controller) {
        const piece = pieces.shift()
        if (piece) controller.enqueue(new TextEncoder().encode(piece))
        else controller.close()
      },
    })
  const origin = await listen(fetchRuntime(fetchMiddleware(middleware, () => new Response(body()))))
  expect((await call(origin)).body).toBe('one two three')
  await expectCalls(middleware.leave, 1)
})
