import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { IncomingMessage, request, ServerResponse } from 'node:http'
import { connect, Socket } from 'node:net'
import { createGunzip } from 'node:zlib'
import { vi } from 'vitest'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../../test/support/concurrent.ts'
import { startProxy } from '../../../../test/support/proxy.ts'
import { connectionOptions, useRedis } from '../../../../test/support/redis.ts'
import { EventHub } from '../../src/event-hub.ts'
import { EventStream } from '../../src/event-stream.ts'
import { readEvents } from './event-reader.ts'
import { SAME_ORIGIN, serve, shapedQueue, tokenFile } from './support.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const options = { connection: redis.connection, prefix: redis.prefix }

test('the fleet comes at once and every second, as /api/fleet tells it', async () => {
  const queue = await shapedQueue(redis, 'fleet')
  const { url, get } = await serve(options, '/sluice')
  const answer = await get('api/events')
  expect(Object.fromEntries(answer.headers)).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store, no-transform',
    'x-content-type-options': 'nosniff',
    'content-security-policy': expect.stringContaining("default-src 'self'"),
  })
  await answer.body?.cancel()
  const events = await readEvents(`${url}api/events`)
  const first = await events.next()
  expect(first).toMatchObject({ event: 'fleet', data: { allowActions: false, redis: { role: 'master' } } })
  expect(Object.keys(first?.data)).toEqual(Object.keys((await (await get('api/fleet')).json()) as object))
  await queue.add('job', {})
  for (;;) {
    const { data } = (await events.next('fleet')) ?? {}
    if (data.queues.find(({ name }: { name: string }) => name === 'fleet').waiting === 1) break
  }
})

test('one token, or one address of it, leaves room for others', async () => {
  await shapedQueue(redis, 'shared')
  const { file, tokens } = tokenFile({ one: undefined, two: undefined })
  const { port } = await serve({ ...options, tokens: file })
  const open = async (token: string, localAddress: string): Promise<number> => {
    const asked = request({
      ...{ port, localAddress, host: '127.0.0.1', path: '/api/events', agent: false },
      headers: { authorization: `Bearer ${token}` },
    })
    asked.on('error', () => {})
    const [answer] = (await once(asked.end(), 'response')) as [IncomingMessage]
    answer.resume().on('error', () => {})
    onTestFinished(() => void asked.destroy())
    return answer.statusCode ?? 0
  }
  const opened = async (token: string, address: string) => {
    for (let count = 0; ; count += 1) {
      const status = await open(token, address)
      if (status !== 200) return { count, status }
    }
  }
  expect(await opened(tokens.one, '127.0.0.1')).toEqual({ count: 167, status: 429 })
  expect(await opened(tokens.one, '127.0.0.2')).toEqual({ count: 56, status: 429 })
  expect(await opened(tokens.two, '127.0.0.1')).toEqual({ count: 93, status: 429 })
  expect(await open(tokens.two, '127.0.0.3')).toBe(200)
})

test('a queue that is followed tells of each change once, to each who follows', async () => {
  const queue = await shapedQueue(redis, 'followed')
  await queue.setShape({ rate: '5/s' }, { by: 'ada', reason: 'before' })
  const { url } = await serve(options)
  const readers = await Promise.all([1, 2, 3].map(() => readEvents(`${url}api/events?queue=followed`)))
  const firsts = await Promise.all(readers.map((reader) => reader.next('queue')))
  for (const first of firsts) expect(first?.data.status).toMatchObject({ name: 'followed', rate: '5/s' })
  await queue.setShape({ rate: '6/s' }, { by: 'ada', reason: 'after' })
  await Promise.all(
    readers.map(async (reader) => {
      const told: string[] = []
      while (!told.includes('after')) {
        const { data } = (await reader.next('queue')) ?? {}
        told.push(...data.history.map((entry: { reason: string }) => entry.reason))
      }
      expect(told.filter((one) => one === 'after')).toHaveLength(1)
      expect((await reader.next('queue'))?.data.history).toEqual([])
    }),
  )
})

test('a page of one queue need not be sent the others, and learns when its queue is gone', async () => {
  const queue = await shapedQueue(redis, 'alone')
  await shapedQueue(redis, 'beside')
  const { url } = await serve(options)
  const events = await readEvents(`${url}api/events?queue=alone&fleet=false`)
  for (let i = 0; i < 2; i++) {
    const event = await events.next()
    expect([event?.event, event?.data.status.name, event?.data.redis.role]).toEqual(['queue', 'alone', 'master'])
  }
  await queue.obliterate()
  for (;;) {
    const event = await events.next()
    if (event?.event === 'queue') continue
    expect(event).toMatchObject({ event: 'gone', data: { queue: 'alone' } })
    break
  }
})

test('a stream is compressed for who takes that, event by event', async () => {
  for (let i = 0; i < 20; i++) await shapedQueue(redis, `zipped-${i}`)
  const { url, port } = await serve(options)
  const zipped = await readEvents(`${url}api/events`, { 'accept-encoding': 'gzip' })
  const plain = await readEvents(`${url}api/events`, { 'accept-encoding': 'identity' })
  for (const events of [zipped, plain]) {
    for (let i = 0; i < 3; i++) expect((await events.next())?.data.queues.length).toBeGreaterThanOrEqual(20)
  }
  const [small, large] = [await firstEvent(port, 'gzip'), await firstEvent(port, 'identity')]
  expect([small.coding, large.coding]).toEqual(['gzip', undefined])
  expect(small.bytes).toBeLessThan(large.bytes / 4)
})

/** How the first event of a stream is sent. */
async function firstEvent(port: number, coding: string): Promise<{ coding: string | undefined; bytes: number }> {
  const sent = request({ port, host: '127.0.0.1', path: '/api/events', headers: { 'accept-encoding': coding } }).end()
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  let bytes = 0
  response.on('data', (chunk: Buffer) => {
    bytes += chunk.length
  })
  let text = ''
  for await (const chunk of coding === 'gzip' ? response.pipe(createGunzip()) : response) {
    text += chunk
    if (/data: [^\n]*\n\n/.test(text)) break
  }
  sent.destroy()
  return { bytes, coding: response.headers['content-encoding'] }
}

test('whoever comes back with Last-Event-ID is told what he missed', async () => {
  const queue = await shapedQueue(redis, 'back')
  const { url } = await serve(options)
  const before = await readEvents(`${url}api/events?queue=back`)
  const id = (await before.next('queue'))?.id as string
  expect(id).toMatch(/^\d+-\d+$/)
  before.close()
  await queue.setShape({ rate: '7/s' }, { by: 'ada', reason: 'missed' })
  const after = await readEvents(`${url}api/events?queue=back`, { 'last-event-id': id })
  for (;;) {
    const { data } = (await after.next('queue')) ?? {}
    if (data.history.length === 0) continue
    expect(data.history).toMatchObject([{ kind: 'override', reason: 'missed' }])
    break
  }
})

test('an end of the server ends the streams', async () => {
  const { url, app } = await serve(options)
  const events = await readEvents(`${url}api/events`)
  expect(await events.next()).toMatchObject({ event: 'fleet' })
  await app.close()
  for (;;) if ((await events.next()) === undefined) break
})

test('a logout ends the stream, and so does a token that is taken back', async () => {
  const { file, tokens } = tokenFile({ ada: undefined, bob: undefined, cyd: undefined })
  const { url, post } = await serve({ ...options, tokens: file })
  const cookieOf = async (token: string) =>
    (await post('login', { token })).headers.getSetCookie()[0]?.split(';')[0] as string
  const [ada, bob] = [await cookieOf(tokens.ada), await cookieOf(tokens.bob)]
  const [first, second, third] = await Promise.all([
    readEvents(`${url}api/events`, { cookie: ada }),
    readEvents(`${url}api/events`, { cookie: bob }),
    readEvents(`${url}api/events`, { authorization: `Bearer ${tokens.cyd}` }),
  ])
  await Promise.all([first.next(), second.next(), third.next()])
  await post('logout', {}, { ...SAME_ORIGIN, cookie: ada })
  for (;;) if ((await first.next()) === undefined) break
  const entries = JSON.parse(readFileSync(file, 'utf8')) as { name: string }[]
  writeFileSync(file, JSON.stringify(entries.filter(({ name }) => name === 'ada')))
  for (;;) if ((await second.next()) === undefined) break
  for (;;) if ((await third.next()) === undefined) break
})

test('while Redis is away the streams say so, and go on after it', async () => {
  const proxy = await startProxy(redis.url)
  const { host, port } = connectionOptions(proxy.url)
  try {
    const { url } = await serve({ ...options, connection: { ...redis.connection, host, port } })
    const events = await readEvents(`${url}api/events`)
    expect(await events.next()).toMatchObject({ event: 'fleet' })
    await proxy.refuse()
    const away = await events.next('unavailable')
    expect(JSON.stringify(away?.data)).not.toContain(String(port))
    await proxy.resume()
    expect(await events.next('fleet')).toMatchObject({ event: 'fleet' })
  } finally {
    await proxy.stop()
  }
})

test('a reader who takes nothing does not keep the server from closing, nor others from being told', async () => {
  for (let i = 0; i < 40; i++) await shapedQueue(redis, `${'q'.repeat(90)}${i}`)
  const { url, port, app } = await serve(options)
  const idle = connect(port, '127.0.0.1')
  await once(idle, 'connect')
  idle.pause()
  idle.write('GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n')
  const events = await readEvents(`${url}api/events`)
  for (let i = 0; i < 3; i++) expect(await events.next('fleet')).toMatchObject({ event: 'fleet' })
  await app.close()
  idle.destroy()
})

test('whoever has gone before the stream begins leaves nothing behind: nobody is read for', () => {
  const names = vi.fn()
  const page = { start: 0, count: 100, sort: 'name', down: false, filter: '', marked: false } as const
  const parts = { inspector: {}, reader: { names }, facts: {}, onTurn: () => {} }
  const hub = new EventHub(parts as never)
  const response = new ServerResponse(new IncomingMessage(new Socket()))
  response.destroy()
  const holder = { token: undefined, address: '127.0.0.1' }
  const terms = { holder, page, fleet: true, queue: undefined, lastId: undefined, zips: false }
  hub.add(new EventStream(response, { ...terms, identify: async () => undefined }))
  expect(names).not.toHaveBeenCalled()
})
