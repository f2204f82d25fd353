import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../../../src/index.ts'
import { Inspector, type QueueStatus } from '../../../../src/inspect/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { rowOf } from '../../src/fleet-page.ts'
import { readEvents } from './event-reader.ts'
import { serve, tokenFile } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const options = { connection, prefix }
/** More than are told of at once. */
const QUEUES = 450
const nameOf = (i: number) => `queue-${String(i).padStart(3, '0')}`

interface Page {
  readonly queues: readonly { readonly name: string; readonly depth: number }[]
  readonly total: number
  readonly matching: number
  readonly start: number
  readonly sums?: { readonly depth: number; readonly marked: number }
}

/** Copies of one queue; those whose number divides by 10 hold as many jobs as that number. */
beforeAll(async () => {
  const queue = new ShapedQueue('queue', { connection, prefix, shape: { rate: '1/h', capacity: 1000 } })
  await queue.getShape()
  const batch = redis.client().pipeline()
  for (let i = 0; i < QUEUES; i++) {
    const base = `${prefix}:${nameOf(i)}`
    batch.copy(queue.toKey('meta:shape'), `${base}:meta:shape`).copy(queue.toKey('meta'), `${base}:meta`)
    if (i > 0 && i % 10 === 0) batch.lpush(`${base}:wait`, ...Array.from({ length: i }, (_, job) => `job-${job}`))
    batch.sadd(`${prefix}:shaped-queues`, nameOf(i))
  }
  batch.srem(`${prefix}:shaped-queues`, queue.name)
  await batch.exec()
  await queue.close()
})

test('very many queues come page by page, sorted and filtered here; the sums are over all', async () => {
  const { get } = await serve(options)
  const page = async (query: string) => (await (await get(`api/fleet?${query}`)).json()) as Page
  const names = ({ queues }: Page) => queues.map(({ name }) => name)

  const first = await page('')
  expect(names(first)).toEqual(Array.from({ length: 100 }, (_, i) => nameOf(i)))
  expect(first).toMatchObject({ total: QUEUES, matching: QUEUES, start: 0 })
  expect(names(await page('start=400'))).toEqual(Array.from({ length: 50 }, (_, i) => nameOf(400 + i)))
  expect(names(await page('down=true&count=2'))).toEqual([nameOf(449), nameOf(448)])

  const deepest = await page('sort=depth&down=true&count=3')
  expect(deepest.queues.map(({ name, depth }) => [name, depth])).toEqual([440, 430, 420].map((i) => [nameOf(i), i]))
  const filled = Array.from({ length: 44 }, (_, i) => 10 * (i + 1))
  expect(deepest.sums).toMatchObject({ depth: filled.reduce((sum, one) => sum + one, 0), marked: filled.length })

  const found = await page('filter=no+worker+QUEUE-1&sort=depth')
  expect(found).toMatchObject({ total: QUEUES, matching: 10 })
  expect(names(found)).toEqual(Array.from({ length: 10 }, (_, i) => nameOf(100 + 10 * i)))
  expect(await page('filter=nothing+like+it')).toMatchObject({ matching: 0, queues: [] })

  const marked = await page('marked=true&sort=look&down=true&count=200')
  expect([marked.matching, names(marked)]).toEqual([filled.length, filled.map(nameOf)])
  const looked = await page('sort=look&down=true&count=46')
  expect([looked.matching, names(looked)]).toEqual([QUEUES, [...filled, 0, 1].map(nameOf)])
})

test('a stream tells of its page, and of the queue that it follows, wherever that stands', async () => {
  const { url } = await serve(options)
  const stream = await readEvents(`${url}api/events?queue=${nameOf(449)}&sort=depth&down=true&count=2`)
  const fleet = await stream.next('fleet')
  expect(fleet?.data.queues.map(({ name }: { name: string }) => name)).toEqual([nameOf(440), nameOf(430)])
  expect((await stream.next('queue'))?.data.status).toMatchObject({ name: nameOf(449), depth: 0 })
  stream.close()
})

test('a token for some queues sees a whole of its own, and its sums', async () => {
  const few = [nameOf(10), nameOf(20), 'nobody']
  const most = Array.from({ length: 300 }, (_, i) => nameOf(i))
  const { file, tokens } = tokenFile({ few, most })
  const { get } = await serve({ ...options, tokens: file })
  const page = async (token: string, query = '') => {
    const answer = await get(`api/fleet?${query}`, { authorization: `Bearer ${token}` })
    return (await answer.json()) as Page
  }
  expect(await page(tokens.few)).toMatchObject({ total: 2, queues: [{ depth: 10 }, { depth: 20 }] })
  const top = await page(tokens.most, 'sort=depth&down=true&count=1')
  expect(top).toMatchObject({ total: 300, matching: 300, queues: [{ name: nameOf(290) }], sums: { marked: 29 } })
})

test.each(['sort=size', 'down=1', 'marked=1', 'count=201', 'start=-1', `filter=${'x'.repeat(201)}`])(
  '%s is refused',
  async (query) => {
    const { get } = await serve(options)
    expect((await get(`api/fleet?${query}`)).status).toBe(400)
  },
)

test('a queue that could not be read has no flow, nor a peak when it is back', async () => {
  const inspector = new Inspector({ connection, prefix })
  onTestFinished(() => inspector.close())
  const [status] = (await inspector.status([nameOf(0)])) as [QueueStatus]
  const at = (ms: number, more: Partial<QueueStatus>) => ({ ...status, at: new Date(ms), ...more })
  const unread = { acceptedTotal: 0, departedTotal: 0, refusedTotal: 0, unread: ['queue' as const] }
  const read = { acceptedTotal: 1e6, departedTotal: 1e6, refusedTotal: 1e6 }
  const looks = [read, unread, unread, read, read].map((more, i) => at(1000 * i, more))
  const rows = looks.map((_, i) =>
    rowOf(looks[i] as QueueStatus, i > 0 ? rowOf(looks[i - 1] as QueueStatus) : undefined),
  )
  const flows = rows.map(({ arrivals, departures, refusals }) => [arrivals, departures, refusals])
  expect(flows).toEqual([...Array(4).fill([-1, -1, -1]), [0, 0, 0]])
})
