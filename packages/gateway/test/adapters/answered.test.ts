import { expect, onTestFinished, test } from 'vitest'
import { connectMiddleware } from '../../src/adapters/node.ts'
import type { Entry } from '../../src/middleware.ts'
import { call } from './support/callers.ts'
import { expectCalls, held, middlewareOf, turnstile } from './support/middleware.ts'
import { listen } from './support/servers.ts'

/** What nobody has caught since: by itself it would end the process. */
function uncaught(): unknown[] {
  const seen: unknown[] = []
  const note = (error: unknown) => void seen.push(error)
  const others = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection').on('unhandledRejection', note)
  onTestFinished(() => {
    process.off('unhandledRejection', note)
    for (const other of others) process.on('unhandledRejection', other)
  })
  return seen
}

async function someTurns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
}

/** A server whose time-out answers before the middleware does. @returns its origin, and who was let through */
async function serveLate(entry: Promise<Entry>) {
  const through: unknown[] = []
  const guard = connectMiddleware(middlewareOf(() => entry))
  const origin = await listen((req, res) => {
    guard(req, res, (error) => void through.push(error))
    res.writeHead(503).end('too late')
  })
  return { origin, through }
}

test.each<[string, Entry]>([
  ['an answer', { response: { status: 429, headers: { 'retry-after': '1' } } }],
  ['a pass', { headers: { ratelimit: '"a";r=1' } }],
])('%s of a middleware, where somebody else has answered meanwhile, is said to nobody', async (_what, entry) => {
  const seen = uncaught()
  const { promise, release } = held<Entry>()
  const { origin, through } = await serveLate(promise)
  expect(await call(origin)).toMatchObject({ status: 503, body: 'too late' })
  release(entry)
  await someTurns()
  expect(seen).toEqual([])
  expect(through).toEqual([])
})

test('a middleware is left, where somebody else has answered meanwhile', async () => {
  const { promise, release } = held<Entry>()
  const { leave } = turnstile()
  const { origin } = await serveLate(promise)
  await call(origin)
  release({ leave })
  await expectCalls(leave, 1)
})

test('a field that no header can hold goes to next', async () => {
  const seen = uncaught()
  const guard = connectMiddleware(middlewareOf(() => ({ headers: { 'x-name': '日本' } })))
  const origin = await listen((req, res) => guard(req, res, (error) => void res.writeHead(error ? 500 : 200).end()))
  expect((await call(origin)).status).toBe(500)
  expect(seen).toEqual([])
})
