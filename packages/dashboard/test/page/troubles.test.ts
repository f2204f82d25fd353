import { stripVTControlCharacters } from 'node:util'
import { UnrecoverableError, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import type { Locator, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { changeMeter } from '../../../../test/support/meter.ts'
import { connectionOptions, type TestRedis } from '../../../../test/support/redis.ts'
import { gate, jobs, Workshop } from '../../../../test/worker/support.ts'
import { type RedisService, startRedis } from '../../../../workers/services/redis.ts'
import { runHere } from '../../../cli/test/run-here.ts'
import { describePage, PageStage } from './support.ts'

const AGO_MS = 120_000
const prefix = 'operated'

/** What is wrong with which queue, in the order in which they need a look; then those that are well. */
const TROUBLES: readonly (readonly [queue: string, badge: string, why: RegExp])[] = [
  ['invoices', 'No worker', /^3 jobs wait, and no worker has reported$/],
  ['sms', 'Bypassed', /start past the meter.*: the rate may be exceeded$/],
  [
    'receipts',
    'Failing',
    /^100% failed: connect ECONNREFUSED 10\.0\.0\.5:25 \(of 6 attempts in 5 min, 6 jobs permanently\)$/,
  ],
  ['thumbnails', 'Not taken', /^1 worker, 1 of 1 places taken; the next job waits 2m/],
  ['webhooks', 'Full', /^new jobs are refused; group acme holds 3 of 3 places$/],
  ['reports', 'Starving', /^the oldest job waits for 2m.*, the next one for /],
  ['exports', 'Groups held', /^1 group paused$/],
  ['newsletters', 'Override', /^rate by ada .* ago, has no end: incident 4711$/],
]
const WELL = ['orders', 'search']

let service: RedisService
let admin: Redis
let redis: TestRedis

// Redis itself gets into trouble as well.
beforeAll(async () => {
  service = await startRedis({ ignoreGiven: true })
  admin = new Redis(service.url)
  const connection = { ...connectionOptions(service.url), connectionName: prefix, maxRetriesPerRequest: null }
  redis = { url: service.url, prefix, connection } as TestRedis
})
afterAll(async () => {
  admin.disconnect()
  await service.stop()
})

/** Brings each of {@link TROUBLES} about, as far as that can be without waiting for minutes. */
async function plant(shop: Workshop, hanging: Promise<void>): Promise<void> {
  const { connection } = redis
  const done = async () => {}
  const ofGroup = (id: string, count: number) => jobs(count).map((job) => ({ ...job, opts: { group: { id } } }))
  const old = { timestamp: Date.now() - AGO_MS }
  const queues = [
    shop.queueNamed('invoices', { rate: '10/s' }).addBulk(jobs(3)),
    shop.queueNamed('orders', { rate: '100/s' }).addBulk(jobs(3)),
    shop.queueNamed('search', { limits: [{ name: 'minute', rate: '600/min' }], groups: {} }).getShape(),
    shop.queueNamed('sms', { rate: '1/min' }).addBulk(jobs(9)),
    shop.queueNamed('receipts', { rate: '100/s' }).addBulk(jobs(6)),
    shop.queueNamed('thumbnails', { rate: '100/s' }).addBulk(jobs(3).map((job) => ({ ...job, opts: old }))),
  ]
  const full = shop.queueNamed('webhooks', { rate: '1/h', capacity: 3, groups: { capacity: 3 } })
  const starving = shop.queueNamed('reports', { rate: '1/h' })
  const held = shop.queueNamed('exports', { rate: '10/s', groups: {} })
  const slowed = shop.queueNamed('newsletters', { rate: '50/s' })
  await Promise.all(queues)
  await slowed.setShape({ rate: '1/s' }, { by: 'ada', reason: 'incident 4711' })
  await held.pauseGroup('acme', { by: 'jonas', reason: 'unpaid' })
  await held.addBulk(ofGroup('acme', 2))
  // The first of each departs at once.
  await full.addBulk(ofGroup('acme', 1))
  await starving.add('first', {})
  for (const name of ['orders', 'search', 'sms', 'webhooks', 'reports', 'exports', 'newsletters']) {
    shop.worker({ name }, done)
  }
  shop.worker({ name: 'thumbnails' }, () => hanging)
  shop.worker({ name: 'receipts' }, async () => {
    throw new UnrecoverableError('connect ECONNREFUSED 10.0.0.5:25')
  })
  const stock = new Worker('sms', done, { connection, prefix, name: 'legacy-sender', concurrency: 4 })
  // It would print that Redis is full.
  shop.keep(stock.on('error', () => {}))
  for (const queue of [full, starving]) await expect.poll(() => queue.getCompletedCount()).toBe(1)
  await full.addBulk(ofGroup('acme', 3))
  await starving.addBulk([{ name: 'old', data: {}, opts: { ...old, priority: 9 } }, ...jobs(2)])
  // It hangs for minutes: nobody asked for the next job.
  await expect.poll(() => admin.llen(`${prefix}:thumbnails:active`)).toBe(1)
  const us = (Date.now() - AGO_MS) * 1000
  const before = { holds: 'workers', holdsSince: us, holdsUntil: '', heldAt: us }
  await admin.hset(`${prefix}:thumbnails:meta:meter`, before)
  await changeMeter(admin, `${prefix}:thumbnails:`, { seen: us, leftAt: 0 })
}

const rowOf = (page: Page, name: string) =>
  page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) })
/** Whether all of a text can be read: within the screen, and not cut. */
const isWhole = (text: Locator, width: number) =>
  text.evaluate((element, screen) => {
    const { left, right } = element.getBoundingClientRect()
    return left >= 0 && right <= screen && element.scrollWidth <= element.clientWidth + 1
  }, width)

describePage('queues in trouble', () => {
  const stage = new PageStage()
  const shop = new Workshop({
    get connection() {
      return redis.connection
    },
    prefix,
  } as TestRedis)

  test('look like it on the page and in sluice status, the worst first, and others beside them do not', async () => {
    const { open, opened } = gate()
    // Before the workers close, also where this fails.
    shop.keep({ close: async () => open() })
    await plant(shop, opened)
    const names = TROUBLES.map(([name]) => name)
    const options = { connection: redis.connection, prefix }
    const { page, url, errors } = await stage.open({ options, context: { viewport: { width: 1400, height: 1300 } } })
    const narrow = await stage.look(url, '', { viewport: { width: 390, height: 900 } })
    for (const one of [page, narrow.page]) {
      for (const [name, badge, why] of TROUBLES) {
        const row = rowOf(one, name)
        await row.scrollIntoViewIfNeeded()
        const shown = [row.getByText(badge, { exact: true }).first(), row.getByText(why)]
        for (const text of shown) {
          await text.waitFor()
          expect(await isWhole(text, one.viewportSize()?.width ?? 0), `${name}: ${badge}`).toBe(true)
        }
      }
      await expect
        .poll(async () => (await one.locator('table').getByRole('link').allTextContents()).slice(0, 8))
        .toEqual(names)
      for (const name of WELL) expect(await rowOf(one, name).locator('.badge').count(), name).toBe(0)
      await one.getByRole('button', { name: 'Need a look 8' }).waitFor()
      expect(await one.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
    }
    const status = async () => stripVTControlCharacters((await runHere(redis, ['status'])).stdout).split('\n')
    const lines = await status()
    expect(lines.slice(1, 9).map((line) => line.split(' ')[0])).toEqual(names)
    const explained = lines.slice(lines.indexOf('', 1) + 1)
    expect(explained.filter((line) => /^\S/.test(line))).toEqual(names)
    for (const [name, badge, why] of TROUBLES) {
      const at = explained.indexOf(name)
      expect(explained[at + 1]?.startsWith(`  ${badge}: `), explained[at + 1]).toBe(true)
      expect(explained[at + 1]?.slice(badge.length + 4)).toMatch(why)
      expect(explained[at + 2]).toMatch(/^ {4}→ \S/)
    }

    const used = Number(/used_memory:(\d+)/.exec(await admin.info('memory'))?.[1])
    await admin.config('SET', 'maxmemory', Math.ceil(used / 0.95))
    await page.getByText(/^Memory 9\d%$/).waitFor()
    expect(await status()).toContainEqual(
      expect.stringMatching(/^ {2}Memory: 9\d% of .* is used: when it is full, jobs/),
    )
    await admin.config('SET', 'maxmemory', Math.ceil(used / 2))
    for (const one of [page, narrow.page]) {
      await one.getByText(/^Redis refuses writes: its memory is full \(\d+% of .*\)\. No job can be added\./).waitFor()
    }
    const full = await status()
    expect(full[full.indexOf('Redis') + 1]).toMatch(/^ {2}Writes refused: its memory is full \(\d+% of .*\): no job/)
    await admin.config('SET', 'maxmemory', 0)
    expect([...errors, ...narrow.errors]).toEqual([])
  })
})
