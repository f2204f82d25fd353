import { Agent } from 'node:http'
import { PassThrough } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { call, connected, received } from './support/callers.ts'
import { expectCalls, held, middlewareOf, turnstile } from './support/middleware.ts'
import { KINDS, serve } from './support/servers.ts'

const ASK = 'GET / HTTP/1.1\r\nhost: here\r\n\r\n'

test.each(KINDS)('%s: whoever got an answer has left, once, also on a connection that is kept', async (kind) => {
  const middleware = turnstile()
  const origin = await serve(kind, middleware)
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  for (let i = 1; i <= 12; i++) {
    await call(origin, { agent })
    await expectCalls(middleware.leave, i)
  }
  agent.destroy()
  await expectCalls(middleware.leave, 12)
})

test.each(KINDS)('%s: whoever asked with HEAD has left', async (kind) => {
  const middleware = turnstile()
  const origin = await serve(kind, middleware)
  await call(origin, { method: 'HEAD' })
  await expectCalls(middleware.leave, 1)
})

test.each(KINDS)('%s: whoever is still being answered has not left', async (kind) => {
  const middleware = turnstile()
  const body = new PassThrough()
  const origin = await serve(kind, middleware, () => body)
  const socket = await connected(origin)
  const started = received(socket, 'first')
  socket.write(ASK)
  body.write('first part')
  await started
  await expectCalls(middleware.leave, 0)
  const ended = received(socket, 'last')
  body.end('last part')
  await ended
  await expectCalls(middleware.leave, 1)
})

test.each(KINDS)('%s: whoever goes while he is waited on has left', async (kind) => {
  const middleware = turnstile()
  const { promise, release } = held<string>()
  const origin = await serve(kind, middleware, () => promise)
  const socket = await connected(origin)
  socket.write(ASK)
  await expect.poll(() => middleware.came).toHaveLength(1)
  await expectCalls(middleware.leave, 0)
  socket.destroy()
  await expectCalls(middleware.leave, 1)
  release('too late')
  await expectCalls(middleware.leave, 1)
})

test.each(KINDS)('%s: whoever goes in the middle of an answer has left', async (kind) => {
  const middleware = turnstile()
  const body = new PassThrough()
  const origin = await serve(kind, middleware, () => body)
  const socket = await connected(origin)
  const started = received(socket, 'first')
  socket.write(ASK)
  body.write('first part')
  await started
  socket.destroy()
  await expectCalls(middleware.leave, 1)
  body.destroy()
})

test.each(KINDS)('%s: whoever is answered by a failure has left', async (kind) => {
  const middleware = turnstile()
  const origin = await serve(kind, middleware, () => Promise.reject(new Error('broken')))
  expect((await call(origin)).status).toBe(500)
  await expectCalls(middleware.leave, 1)
})

test.each(KINDS)('%s: an answer that breaks off ends it', async (kind) => {
  const middleware = turnstile()
  const body = new PassThrough()
  const origin = await serve(kind, middleware, () => body)
  const socket = await connected(origin)
  const started = received(socket, 'first')
  socket.write(ASK)
  body.write('first part')
  await started
  body.destroy(new Error('broken'))
  await expectCalls(middleware.leave, 1)
})

test.each(KINDS)('%s: of requests that came in one go, each leaves with its answer', async (kind) => {
  const middleware = turnstile()
  const answers = [held<string>(), held<string>(), held<string>()]
  let asked = 0
  const origin = await serve(kind, middleware, () => (answers[asked++] as (typeof answers)[0]).promise)
  const socket = await connected(origin)
  socket.write(ASK.repeat(3))
  await expect.poll(() => asked).toBe(3)
  const first = received(socket, 'one')
  answers[0]?.release('one')
  await first
  await expectCalls(middleware.leave, 1)
  const second = received(socket, 'two')
  answers[1]?.release('two')
  await second
  await expectCalls(middleware.leave, 2)
  socket.destroy()
  await expectCalls(middleware.leave, 3)
})

test.each(['fastify', 'express', 'node'] as const)(
  '%s: all who came in one go leave when their connection goes',
  async (kind) => {
    const warned = vi.fn()
    process.on('warning', warned)
    const middleware = turnstile()
    const origin = await serve(kind, middleware, () => new Promise<string>(() => {}))
    const socket = await connected(origin)
    socket.write(ASK.repeat(20))
    await expect.poll(() => middleware.came).toHaveLength(20)
    await expectCalls(middleware.leave, 0)
    socket.destroy()
    await expectCalls(middleware.leave, 20)
    process.off('warning', warned)
    expect(warned).not.toHaveBeenCalled()
  },
)

test.each(KINDS)('%s: whoever went before the middleware let him pass has left, and goes no further', async (kind) => {
  const { promise, release } = held()
  const left = vi.fn()
  const behind = vi.fn(() => 'passed')
  const aborted = vi.fn()
  const middleware = middlewareOf(async ({ signal }) => {
    signal.addEventListener('abort', aborted)
    await promise
    return { leave: left }
  })
  const origin = await serve(kind, middleware, behind)
  const socket = await connected(origin)
  socket.write(ASK)
  await expect.poll(() => middleware.came).toHaveLength(1)
  expect(middleware.came[0]?.signal.aborted).toBe(false)
  socket.destroy()
  await expectCalls(aborted, 1)
  release()
  await expectCalls(left, 1)
  expect(behind).not.toHaveBeenCalled()
  expect(middleware.came[0]?.signal.aborted).toBe(true)
})

test.each(KINDS)('%s: the signal of somebody who was answered does not abort', async (kind) => {
  const aborted = vi.fn()
  const middleware = middlewareOf(({ signal }) => {
    signal.addEventListener('abort', aborted)
    return {}
  })
  const origin = await serve(kind, middleware)
  const agent = new Agent({ keepAlive: true })
  for (let i = 0; i < 3; i++) await call(origin, { agent })
  agent.destroy()
  await expectCalls(aborted, 0)
})
