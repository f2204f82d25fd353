import { expect, test, vi } from 'vitest'
import type { HttpResponse } from '../../src/middleware.ts'
import { call } from './support/callers.ts'
import { middlewareOf, turnstile } from './support/middleware.ts'
import { KINDS, serve } from './support/servers.ts'

const REFUSAL: HttpResponse = {
  status: 429,
  headers: { 'content-type': 'application/problem+json', 'x-why': 'full' },
  body: '{"a":1}',
}

test.each(KINDS)('%s: what a middleware answers is sent, and nobody behind it is asked', async (kind) => {
  const behind = vi.fn(() => 'passed')
  const origin = await serve(
    kind,
    middlewareOf(async () => ({ response: REFUSAL })),
    behind,
  )
  const said = await call(`${origin}/any?thing=1`)
  expect(said).toMatchObject({ status: 429, headers: REFUSAL.headers, body: '{"a":1}' })
  expect(await call(origin, { method: 'HEAD' })).toMatchObject({ status: 429, headers: REFUSAL.headers, body: '' })
  expect(await call(origin, { method: 'POST' }, ['a body', 'nobody', 'reads'])).toMatchObject({ status: 429 })
  expect(behind).not.toHaveBeenCalled()
})

test.each(KINDS)('%s: an answer without a body has none', async (kind) => {
  const origin = await serve(
    kind,
    middlewareOf(() => ({ response: { status: 204, headers: { 'x-why': 'nothing' } } })),
  )
  expect(await call(origin)).toMatchObject({ status: 204, headers: { 'x-why': 'nothing' }, body: '' })
})

test.each(KINDS)('%s: the fields of a pass are added to the answer behind the middleware', async (kind) => {
  const origin = await serve(kind, turnstile({ headers: { ratelimit: '"a";r=1', 'x-one': '1' } }))
  expect(await call(origin)).toMatchObject({
    status: 200,
    headers: { ratelimit: '"a";r=1', 'x-one': '1' },
    body: 'passed',
  })
})

test.each(['fastify', 'express', 'node'] as const)('%s: also where what is behind it fails', async (kind) => {
  const failing = () => Promise.reject(new Error('broken'))
  const origin = await serve(kind, turnstile({ headers: { 'x-one': '1' } }), failing)
  expect(await call(origin)).toMatchObject({ status: 500, headers: { 'x-one': '1' } })
})

test.each(KINDS)('%s: a middleware that breaks is a failure of the server, and lets nobody pass', async (kind) => {
  const behind = vi.fn(() => 'passed')
  const broken = middlewareOf(() => {
    throw new Error('broken')
  })
  const origin = await serve(kind, broken, behind)
  expect((await call(origin)).status).toBe(500)
  expect(behind).not.toHaveBeenCalled()
})

test.each(KINDS)('%s: a middleware sees the request as it came', async (kind) => {
  const middleware = turnstile()
  const origin = await serve(kind, middleware)
  await call(`${origin}/a/b?c=d&e=%20`, {
    method: 'PUT',
    headers: { 'X-Forwarded-For': ['1.1.1.1', '2.2.2.2'], 'X-Api-Key': 'k' },
  })
  const [request] = middleware.came
  expect(request).toMatchObject({ method: 'PUT', url: '/a/b?c=d&e=%20', remoteAddress: '127.0.0.1' })
  expect(request?.header('x-forwarded-for')).toBe('1.1.1.1, 2.2.2.2')
  expect(request?.header('x-api-key')).toBe('k')
  expect(request?.header('x-other')).toBeUndefined()
  expect(request?.raw).toBeTypeOf('object')
})
