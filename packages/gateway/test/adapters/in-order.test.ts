import { expect, test } from 'vitest'
import { inOrder } from '../../src/adapters/in-order.ts'
import type { Entry, HttpRequest, Middleware } from '../../src/middleware.ts'

const REQUEST: HttpRequest = {
  method: 'GET',
  url: '/',
  header: () => undefined,
  remoteAddress: undefined,
  body: async () => new Uint8Array(),
  signal: new AbortController().signal,
  raw: undefined,
}

/** Middleware that writes down who enters and leaves. */
function stackOf(...entries: (Entry | Error)[]): { readonly row: Middleware[]; readonly log: string[] } {
  const log: string[] = []
  const row = entries.map((entry, i) => ({
    async enter() {
      log.push(`enter ${i}`)
      if (entry instanceof Error) throw entry
      return entry.response ? entry : { ...entry, leave: () => void log.push(`leave ${i}`) }
    },
  }))
  return { row, log }
}

test('middleware is entered in order, and left the other way round', async () => {
  const { row, log } = stackOf({}, {}, {})
  const entry = await inOrder(row).enter(REQUEST)
  expect(log).toEqual(['enter 0', 'enter 1', 'enter 2'])
  expect(entry.response).toBeUndefined()
  if (!entry.response) entry.leave?.()
  expect(log.slice(3)).toEqual(['leave 2', 'leave 1', 'leave 0'])
})

test('the first answer counts: those before it are left, those behind it not entered', async () => {
  const { row, log } = stackOf({}, {}, { response: { status: 429, headers: { 'x-of': 'it' }, body: 'no' } }, {})
  expect(await inOrder(row).enter(REQUEST)).toEqual({
    response: { status: 429, headers: { 'x-of': 'it' }, body: 'no' },
  })
  expect(log).toEqual(['enter 0', 'enter 1', 'enter 2', 'leave 1', 'leave 0'])
})

test('where one breaks, those before it are left', async () => {
  const { row, log } = stackOf({}, {}, new Error('broken'))
  await expect(inOrder(row).enter(REQUEST)).rejects.toThrow('broken')
  expect(log).toEqual(['enter 0', 'enter 1', 'enter 2', 'leave 1', 'leave 0'])
})

test('fields are merged: lists are joined, of others the last counts; an answer has them as well', async () => {
  const one = { headers: { ratelimit: '"a";r=1', 'ratelimit-policy': '"a";q=2', 'x-ratelimit-limit': '2', 'x-a': '1' } }
  const two = { headers: { ratelimit: '"b";r=3', 'ratelimit-policy': '"b";q=4', 'x-ratelimit-limit': '4' } }
  const both = {
    ratelimit: '"a";r=1, "b";r=3',
    'ratelimit-policy': '"a";q=2, "b";q=4',
    'x-ratelimit-limit': '4',
    'x-a': '1',
  }
  expect(await inOrder(stackOf(one, two).row).enter(REQUEST)).toMatchObject({ headers: both })
  const refusing = stackOf(one, { response: { status: 429, ...two } })
  expect(await inOrder(refusing.row).enter(REQUEST)).toMatchObject({ response: { status: 429, headers: both } })
})

test('an empty stack lets all pass, one is itself, and rows can stand in rows', async () => {
  expect(await inOrder([]).enter(REQUEST)).toEqual({})
  const { row, log } = stackOf({}, {})
  expect(inOrder([row[0] as Middleware])).toBe(row[0])
  const entry = await inOrder([inOrder([row[0] as Middleware]), inOrder([row[1] as Middleware])]).enter(REQUEST)
  if (!entry.response) entry.leave?.()
  expect(log).toEqual(['enter 0', 'enter 1', 'leave 1', 'leave 0'])
})

test('who identified himself at one is known at the next', async () => {
  const seen: unknown[] = []
  const token: Middleware = {
    enter(request) {
      request.identity = { name: 'joe' }
      return {}
    },
  }
  const next: Middleware = {
    enter({ identity }) {
      seen.push(identity)
      return {}
    },
  }
  await inOrder([token, next]).enter({ ...REQUEST })
  expect(seen).toEqual([{ name: 'joe' }])
})

test('what is no middleware is told', () => {
  expect(() => inOrder([{ enter: () => ({}) }, {} as Middleware])).toThrow('middleware 1 has no function enter')
})
