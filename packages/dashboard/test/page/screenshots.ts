import { mkdirSync, statSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { fastify } from 'fastify'
import type { BrowserContextOptions } from 'playwright-core'
import { findBrowser, launchBrowser } from '../../../../test/support/browser.ts'
import { connectionOptions } from '../../../../test/support/redis.ts'
import { startRedis } from '../../../../workers/services/redis.ts'
import { dashboard } from '../../src/index.ts'
import { Shop } from './shop.ts'

// Takes the pictures of docs/dashboard.md: real jobs flow for as long as the charts reach back.

const { ensurePage } = await import(new URL('../../../../workers/page.mjs', import.meta.url).href)
await ensurePage()

const IMAGES = fileURLToPath(new URL('../../../../docs/images/', import.meta.url))
const MAX_BYTES = 300_000
const FLOW_MS = Number(process.env.FLOW_MS ?? 615_000)
/** When pictures are taken: the queue is no longer full, and the charts are. */
const TAKEN_AT = 0.955
const PREFIX = 'shop'

interface Picture {
  readonly name: string
  readonly query: string
  readonly context: BrowserContextOptions
}

const PICTURES: readonly Picture[] = [
  {
    name: 'dashboard-light',
    query: '?queue=emails',
    context: { colorScheme: 'light', viewport: { width: 1360, height: 1400 } },
  },
  {
    name: 'dashboard-dark',
    query: '',
    context: { colorScheme: 'dark', viewport: { width: 1360, height: 660 } },
  },
  {
    name: 'dashboard-phone',
    query: '?queue=emails',
    context: { colorScheme: 'light', viewport: { width: 375, height: 812 }, deviceScaleFactor: 2 },
  },
]

const found = await findBrowser()
if ('missing' in found) throw new Error(found.missing)
// Of its own: it is full of jobs afterwards.
const redis = await startRedis({ ignoreGiven: true })
const connection = { ...connectionOptions(redis.url), maxRetriesPerRequest: null }
const app = fastify()
await app.register(dashboard({ connection, prefix: PREFIX, allowActions: true }))
const url = `${await app.listen({ host: '127.0.0.1', port: 0 })}/`
const browser = await launchBrowser(found.path)
const shop = new Shop(connection, PREFIX)
process.stdout.write(`Jobs flow for ${Math.round(FLOW_MS / 1000)} s; to look at them: ${url}\n`)
try {
  const open = shop.open(FLOW_MS)
  await delay(FLOW_MS * TAKEN_AT)
  for (const picture of PICTURES) await take(picture)
  await open
} finally {
  await browser.close()
  await shop.close()
  await app.close()
  await redis.stop()
}

async function take({ name, query, context }: Picture): Promise<void> {
  const page = await browser.newPage(context)
  await page.goto(url + query)
  // Flows are means over ten seconds.
  await delay(8000)
  mkdirSync(IMAGES, { recursive: true })
  const path = `${IMAGES}${name}.png`
  await page.screenshot({ path })
  await page.context().close()
  const { size } = statSync(path)
  if (size > MAX_BYTES) throw new Error(`${path} has ${size} bytes; expected at most ${MAX_BYTES}`)
  process.stdout.write(`${path}: ${Math.round(size / 1000)} kB\n`)
}
