import { Agent } from 'node:http'
import express from 'express'
import { expect, test, vi } from 'vitest'
import { connectMiddleware } from '../../src/adapters/node.ts'
import { BodyTooLargeError } from '../../src/body.ts'
import { call, connected, received } from './support/callers.ts'
import { middlewareOf, turnstile } from './support/middleware.ts'
import { KINDS, listen, serve } from './support/servers.ts'

const BODIES = [
  ['whole', { method: 'POST', headers: { 'content-type': 'text/plain', 'content-length': 5 } }, ['hello'], 'hello'],
  ['in chunks', { method: 'POST', headers: { 'content-type': 'text/plain' } }, ['he', 'll', 'o'], 'hello'],
  [
    'in chunks, empty',
    { method: 'POST', headers: { 'content-type': 'text/plain', 'transfer-encoding': 'chunked' } },
    [],
    '',
  ],
  ['of no bytes', { method: 'POST', headers: { 'content-type': 'text/plain', 'content-length': 0 } }, [], ''],
  ['that there is not', { method: 'GET' }, [], ''],
] as const

/** Reads the body twice, before it lets the request pass. */
const reader = () => {
  const read: string[] = []
  const middleware = middlewareOf(async (request) => {
    read.push(Buffer.from(await request.body()).toString(), Buffer.from(await request.body()).toString())
    return {}
  })
  return { ...middleware, read }
}

test.each(KINDS.flatMap((kind) => BODIES.map((row) => [kind, ...row] as const)))(
  '%s: a body %s is read by the middleware, and by what is behind it',
  async (kind, _title, options, parts, expected) => {
    const middleware = reader()
    const origin = await serve(kind, middleware, (body) => `got ${body}`)
    expect(await call(origin, options, parts)).toMatchObject({ status: 200, body: `got ${expected}` })
    expect(middleware.read).toEqual([expected, expected])
  },
)

test.each(KINDS)('%s: a long body comes through whole, several times on one connection', async (kind) => {
  const middleware = reader()
  const origin = await serve(kind, middleware, (body) => `${body.length}`, { maxBodyBytes: 90_000 })
  const long = 'x'.repeat(30_000)
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  for (let i = 0; i < 3; i++) {
    const options = { method: 'POST', agent, headers: { 'content-type': 'text/plain' } }
    expect((await call(origin, options, [long, long, long])).body).toBe('90000')
  }
  agent.destroy()
  expect(middleware.read).toEqual(Array(6).fill(long.repeat(3)))
})

test.each(['fastify', 'express', 'node'] as const)(
  '%s: a body that turns out to be none is read by both',
  async (kind) => {
    const middleware = reader()
    const origin = await serve(kind, middleware, (body) => `got "${body}"`)
    const socket = await connected(origin)
    const came = received(socket, 'got')
    socket.write('POST / HTTP/1.1\r\nhost: here\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n')
    await expect.poll(() => middleware.came).toHaveLength(1)
    socket.write('0\r\n\r\n')
    expect(await came).toContain('got ""')
    expect(middleware.read).toEqual(['', ''])
  },
)

test('who listens for the parts of the body behind the middleware is told them', async () => {
  const guard = connectMiddleware(reader())
  const origin = await listen((req, res) =>
    guard(req, res, () => {
      let came = ''
      req.on('data', (part) => {
        came += part
      })
      req.on('end', () => res.end(`got ${came}`))
    }),
  )
  for (const parts of [['hello'], ['he', 'llo'], []]) {
    expect((await call(origin, { method: 'POST' }, parts)).body).toBe(`got ${parts.join('')}`)
  }
})

test('bytes that a parser kept are the body; what a parser used up is told', async () => {
  const app = express()
  app.use('/raw', express.raw({ type: () => true }), connectMiddleware(reader()))
  app.use('/json', express.json(), connectMiddleware(reader()))
  app.use((req, res) => void res.send(`got ${req.body ?? ''}`))
  app.use(
    (error: Error, _req: unknown, res: express.Response, _next: unknown) => void res.status(500).send(error.message),
  )
  const origin = await listen(app)
  const options = { method: 'POST', headers: { 'content-type': 'application/json' } }
  expect((await call(`${origin}/raw`, options, ['[1]'])).body).toBe('got [1]')
  expect((await call(`${origin}/json`, options, ['[1]'])).body).toContain('put the middleware before body parsers')
})

test.each(KINDS)('%s: without a middleware that reads it, the body is what it was', async (kind) => {
  const origin = await serve(kind, turnstile(), (body) => `got ${body}`)
  const options = { method: 'POST', headers: { 'content-type': 'text/plain' } }
  expect((await call(origin, options, ['a', 'b'])).body).toBe('got ab')
})

test.each(KINDS.flatMap((kind) => [[kind, { 'content-length': 12 }] as const, [kind, {}] as const]))(
  '%s, %j: a body that is too long is 413, and goes nowhere',
  async (kind, headers) => {
    const behind = vi.fn(() => 'passed')
    const middleware = reader()
    const origin = await serve(kind, middleware, behind, { maxBodyBytes: 10 })
    const said = await call(origin, { method: 'POST', headers }, ['twelve', ' bytes'])
    expect(said).toMatchObject({ status: 413, headers: { 'content-type': 'application/problem+json' } })
    expect(JSON.parse(said.body)).toMatchObject({
      type: 'about:blank',
      status: 413,
      detail: expect.stringContaining('10 bytes'),
    })
    expect(behind).not.toHaveBeenCalled()
    expect(await call(origin, { method: 'POST' }, ['ten', ' bytes.'])).toMatchObject({ status: 200 })
  },
)

test.each(['fastify', 'express', 'node'] as const)('%s: what is announced too long is not waited for', async (kind) => {
  const origin = await serve(kind, reader(), undefined, { maxBodyBytes: 10 })
  const socket = await connected(origin)
  const came = received(socket, '413')
  socket.write('POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 1000000\r\n\r\nabc')
  expect(await came).toMatch(/connection: close/i)
})

test.each(['fastify', 'express', 'node'] as const)('%s: a body that breaks off is nobody’s any more', async (kind) => {
  const failures: unknown[] = []
  const middleware = middlewareOf(async (request) => {
    await request.body().catch((error: unknown) => {
      failures.push(error)
      throw error
    })
    return {}
  })
  const behind = vi.fn(() => 'passed')
  const origin = await serve(kind, middleware, behind)
  const socket = await connected(origin)
  socket.write('POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nabc')
  await expect.poll(() => middleware.came).toHaveLength(1)
  socket.destroy()
  await expect.poll(() => failures).toMatchObject([{ name: 'CallerGoneError' }])
  expect(behind).not.toHaveBeenCalled()
})

test('a limit of the body that is none is told', async () => {
  for (const maxBodyBytes of [-1, 1.5, Number.NaN, '10' as unknown as number]) {
    await expect(serve('node', turnstile(), undefined, { maxBodyBytes })).rejects.toThrow('maxBodyBytes must be')
  }
  expect(new BodyTooLargeError(10)).toMatchObject({ maxBodyBytes: 10, name: 'BodyTooLargeError' })
})
