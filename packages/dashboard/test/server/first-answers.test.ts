import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { SAME_ORIGIN, serve, shapedQueue, tokenFile } from './support.ts'

// The page brings what it would ask first, for who may see it.

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix }

type Answers = Readonly<Record<string, unknown>>

function answersIn(page: string): Answers {
  const [, json] =
    /<script type="application\/json" id="answers">([^<]*)<\/script><\/body>\n<\/html>\n$/.exec(page) ?? []
  return JSON.parse(json as string) as Answers
}

test('the page of all queues holds what the API would answer', async () => {
  await shapedQueue(redis, 'all-one')
  await shapedQueue(redis, 'all-two')
  const { get } = await serve({ ...options, title: 'Mails', showData: true })
  const answers = answersIn(await (await get('')).text())
  expect(Object.keys(answers)).toEqual(['api/fleet'])
  const asked = (await (await get('api/fleet')).json()) as { queues: object[] }
  const times = { at: expect.any(String), queues: asked.queues.map((queue) => ({ ...queue, at: expect.any(String) })) }
  const moving = { redis: expect.objectContaining({ role: 'master' }), ...times }
  expect(answers['api/fleet']).toEqual({ ...asked, ...moving })
  expect(asked).toMatchObject({ title: 'Mails', showData: true, allowActions: false, total: 2 })
})

test.each([
  ['waiting', {}],
  ['prioritized', { priority: 3 }],
  ['delayed', { delay: 3_600_000 }],
] as const)('the page of a queue holds it, its list of %s jobs, and no other queue', async (state, job) => {
  const queue = await shapedQueue(redis, `one ${state}`)
  await shapedQueue(redis, 'secret')
  for (let i = 0; i < 12; i++) await queue.add('job', { canary: i }, job)
  const { get } = await serve(options)
  const text = await (await get(`?queue=${encodeURIComponent(queue.name)}`)).text()
  const answers = answersIn(text)
  const path = `api/queues/${encodeURIComponent(queue.name)}`
  const lists = [...new Set(['waiting', state])].map((list) => `${path}/jobs?state=${list}&start=0&count=10`)
  expect(Object.keys(answers).toSorted()).toEqual(['api/fleet', path, ...lists].toSorted())
  expect(answers['api/fleet']).toMatchObject({ queues: [{ name: queue.name }], total: expect.any(Number) })
  expect(answers[lists.at(-1) as string]).toMatchObject({ total: 12 })
  expect(Object.keys(answers[path] as object).toSorted()).toEqual(['history', 'status'])
  expect(text).not.toMatch(/secret|canary/)
})

test('the page of a queue with groups holds these', async () => {
  const queue = await shapedQueue(redis, 'grouped', { rate: '5/s', groups: {} })
  await queue.add('job', {}, { group: { id: 'acme' } })
  const { get } = await serve(options)
  const answers = answersIn(await (await get('?queue=grouped')).text())
  expect(answers['api/queues/grouped/groups']).toMatchObject({ counts: { waiting: 1 } })
})

test('lists of jobs with much data are not in the page: it asks for them', async () => {
  const queue = await shapedQueue(redis, 'heavy')
  for (let i = 0; i < 3; i++) await queue.add('job', { text: 'x'.repeat(100_000) })
  const { get } = await serve({ ...options, showData: true })
  const text = await (await get('?queue=heavy')).text()
  expect(Object.keys(answersIn(text))).toEqual(['api/fleet', 'api/queues/heavy'])
  expect(text).not.toContain('xxx')
})

test('markup in names, reasons and data is no markup in the page', async () => {
  const evil = '</script><!--<script>'
  const queue = await shapedQueue(redis, 'evil')
  await queue.setShape({ burst: 3 }, { by: evil, reason: evil })
  await queue.add(evil, { evil })
  const { get } = await serve({ ...options, showData: true, title: evil })
  const page = await (await get('?queue=evil')).text()
  expect(page).not.toContain(evil)
  const answers = answersIn(page)
  expect(answers['api/fleet']).toMatchObject({ title: evil })
  expect(answers['api/queues/evil/jobs?state=waiting&start=0&count=10']).toMatchObject({
    jobs: [{ name: evil, data: { evil } }],
  })
})

test('it holds no answers for who may not see them', async () => {
  await shapedQueue(redis, 'open')
  await shapedQueue(redis, 'closed')
  const { file, tokens } = tokenFile({ ada: undefined, bob: ['open'] })
  const { get, post } = await serve({ ...options, tokens: file })
  const answers = async (query: string, headers: Record<string, string> = {}) => {
    const page = await get(query, headers)
    expect([page.status, page.headers.get('cache-control')]).toEqual([200, 'no-store, no-transform'])
    return answersIn(await page.text())
  }
  const cookieOf = async (token: string) =>
    (await post('login', { token })).headers.getSetCookie()[0]?.split(';')[0] as string
  const [ada, bob] = [await cookieOf(tokens.ada), await cookieOf(tokens.bob)]
  for (const query of ['', '?queue=closed', '?queue=nothing']) {
    expect(await answers(query)).toEqual({})
    expect(await answers(query, { cookie: `${ada}x` })).toEqual({})
    expect(await answers(query, { authorization: `Bearer ${'x'.repeat(43)}` })).toEqual({})
    expect(await answers(query, { cookie: ada, 'sec-fetch-site': 'cross-site' })).toEqual({})
  }
  expect(Object.keys(await answers('?queue=closed', { cookie: ada }))).toHaveLength(3)
  const own = await answers('', { cookie: bob })
  expect(own['api/fleet']).toMatchObject({ queues: [{ name: 'open' }], total: 1 })
  const others = await answers('?queue=closed', { cookie: bob })
  expect(others).toEqual({ 'api/fleet': expect.objectContaining({ queues: [], total: 1 }) })
  await post('logout', {}, { ...SAME_ORIGIN, cookie: bob })
  expect(await answers('', { cookie: bob })).toEqual({})
})

test('where Redis does not answer, the page comes at once, and ends without answers', async () => {
  const silent = createServer((socket) => void held.push(socket))
  const held: Socket[] = []
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  onTestFinished(() => {
    for (const socket of held) socket.destroy()
    silent.close()
  })
  const { port } = silent.address() as { port: number }
  const { get } = await serve({ connection: { host: '127.0.0.1', port }, prefix: redis.prefix })
  const page = await get('', { 'accept-encoding': 'identity' })
  const reader = page.body?.pipeThrough(new TextDecoderStream()).getReader()
  const first = await reader?.read()
  expect(first?.value).toMatch(/^<!doctype html>/)
  let text = first?.value ?? ''
  for (let next = await reader?.read(); !next?.done; next = await reader?.read()) text += next?.value
  expect(answersIn(text)).toEqual({})
})

test.each(['br', 'gzip', 'identity'])('it is the same page as %s', async (coding) => {
  const { get } = await serve({ ...options, prefix: `${redis.prefix}-none` })
  const page = await get('', { 'accept-encoding': coding })
  expect(page.headers.get('content-encoding')).toBe(coding === 'identity' ? null : coding)
  expect(page.headers.get('vary')).toBe('accept-encoding')
  expect(answersIn(await page.text())['api/fleet']).toMatchObject({ queues: [] })
})
