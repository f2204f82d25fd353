import { expect, test } from 'vitest'
import { inOrder } from '../../../src/http/adapters/in-order.ts'
import type { Door, Entry, HttpRequest } from '../../../src/http/door.ts'

const REQUEST: HttpRequest = {
  method: 'GET',
  url: '/',
  header: () => undefined,
  remoteAddress: undefined,
  body: async () => new Uint8Array(),
  signal: new AbortController().signal,
  raw: undefined,
}

/** Doors that write down who enters and leaves. */
function doors(...entries: (Entry | Error)[]): { readonly row: Door[]; readonly log: string[] } {
  const log: string[] = []
  const row = entries.map((entry, i) => ({
    async enter() {
      log.push(`enter ${i}`)
      if (entry instanceof Error) throw entry
      return entry.answer ? entry : { ...entry, leave: () => void log.push(`leave ${i}`) }
    },
  }))
  return { row, log }
}

test('doors are entered in order, and left the other way round', async () => {
  const { row, log } = doors({}, {}, {})
  const entry = await inOrder(row).enter(REQUEST)
  expect(log).toEqual(['enter 0', 'enter 1', 'enter 2'])
  expect(entry.answer).toBeUndefined()
  if (!entry.answer) entry.leave?.()
  expect(log.slice(3)).toEqual(['leave 2', 'leave 1', 'leave 0'])
})

test('the first answer counts: doors before it are left, those behind it are not entered', async () => {
  const { row, log } = doors({}, {}, { answer: { status: 429, headers: { 'x-of': 'it' }, body: 'no' } }, {})
  expect(await inOrder(row).enter(REQUEST)).toEqual({ answer: { status: 429, headers: { 'x-of': 'it' }, body: 'no' } })
  expect(log).toEqual(['enter 0', 'enter 1', 'enter 2', 'leave 1', 'leave 0'])
})

test('where a door breaks, those before it are left', async () => {
  const { row, log } = doors({}, {}, new Error('broken'))
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
  expect(await inOrder(doors(one, two).row).enter(REQUEST)).toMatchObject({ headers: both })
  const refusing = doors(one, { answer: { status: 429, ...two } })
  expect(await inOrder(refusing.row).enter(REQUEST)).toMatchObject({ answer: { status: 429, headers: both } })
})

test('no doors let all pass, one is itself, and rows can stand in rows', async () => {
  expect(await inOrder([]).enter(REQUEST)).toEqual({})
  const { row, log } = doors({}, {})
  expect(inOrder([row[0] as Door])).toBe(row[0])
  const entry = await inOrder([inOrder([row[0] as Door]), inOrder([row[1] as Door])]).enter(REQUEST)
  if (!entry.answer) entry.leave?.()
  expect(log).toEqual(['enter 0', 'enter 1', 'leave 1', 'leave 0'])
})

test('who identified himself at one door is known at the next', async () => {
  const seen: unknown[] = []
  const token: Door = {
    enter(request) {
      request.identity = { name: 'joe' }
      return {}
    },
  }
  const next: Door = {
    enter({ identity }) {
      seen.push(identity)
      return {}
    },
  }
  await inOrder([token, next]).enter({ ...REQUEST })
  expect(seen).toEqual([{ name: 'joe' }])
})

test('what is no door is told', () => {
  expect(() => inOrder([{ enter: () => ({}) }, {} as Door])).toThrow('door 1 has no function enter')
})
