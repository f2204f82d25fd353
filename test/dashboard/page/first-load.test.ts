import { expect, test } from 'vitest'
import { useRedis } from '../../support/redis.ts'
import { describePage, PageStage } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const QUEUES = 200
const PHONE = { viewport: { width: 375, height: 812 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true }

describePage('the first load, on a phone with two hundred queues', () => {
  const stage = new PageStage()

  async function fleet(): Promise<void> {
    const client = redis.client()
    const names = Array.from({ length: QUEUES }, (_, i) => `queue-${String(i).padStart(3, '0')}`)
    await client.sadd(`${prefix}:shaped-queues`, ...names)
    for (const name of names) await client.hset(`${prefix}:${name}:meta:shape`, 'rate', '1')
  }

  test('is a few small files and one request for all queues, and rows are filled as they come near', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    const asked: string[] = []
    page.on('request', (request) =>
      asked.push(
        request
          .url()
          .slice(url.length)
          .replace(/^assets\/[\w-]{16}/, 'assets'),
      ),
    )
    const network = await page.context().newCDPSession(page)
    let bytes = 0
    network.on('Network.loadingFinished', ({ encodedDataLength }) => {
      bytes += encodedDataLength
    })
    await network.send('Network.enable')
    await page.goto(url)
    const rows = page.locator('tbody tr')
    await expect.poll(() => rows.count(), { timeout: 10_000 }).toBe(QUEUES)
    await page.getByText('Live', { exact: true }).waitFor()
    const files = ['first-theme.js', 'main.js', 'page.css'].map((name) => `assets/${name}`)
    const loaded = asked.filter((name) => !/^api\/queues|^api\/events|favicon/.test(name))
    expect(loaded.toSorted()).toEqual(['', 'api/fleet', ...files])
    expect(bytes).toBeLessThan(60_000)
    expect(await page.evaluate('document.querySelectorAll("*").length')).toBeLessThan(1700)
    expect(await rows.first().locator('td').count()).toBe(9)
    expect(await rows.last().locator('td').count()).toBe(0)
    await rows.last().scrollIntoViewIfNeeded()
    await expect.poll(() => rows.last().locator('td').count(), { timeout: 10_000 }).toBe(9)
  })

  test('nothing moves while the page of a queue loads', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    await page.addInitScript(`
      window.moved = 0
      const observer = new PerformanceObserver((list) => list.getEntries().forEach(({ value }) => { moved += value }))
      observer.observe({ type: 'layout-shift', buffered: true })`)
    await page.goto(`${url}?queue=queue-007`)
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
    // Lighthouse takes off points from here on.
    expect(await page.evaluate('moved')).toBeLessThan(0.05)
  })

  test('the page of a queue appears without a list that is not answered, which is filled in later', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    let release: () => void = () => {}
    const held = new Promise<void>((resolve) => {
      release = resolve
    })
    await page.route('**/api/queues/queue-007/jobs**', async (route) => {
      await held
      await route.continue()
    })
    await page.goto(`${url}?queue=queue-007`)
    await page.locator('.queue').waitFor({ state: 'visible' })
    const empty = page.getByRole('tabpanel').getByText('No job waits without a priority or a group.')
    expect(await empty.count()).toBe(0)
    release()
    await empty.waitFor()
  })

  test('loads what a queue needs once its link is near', async () => {
    await fleet()
    const { page, errors } = await stage.open({ options: { connection, prefix }, context: PHONE })
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url().replace(/.*\//, '')))
    const link = page.getByRole('link', { name: 'queue-000', exact: true })
    await link.focus()
    await expect
      .poll(() => asked, { timeout: 10_000 })
      .toEqual(expect.arrayContaining(['queue-view.js', 'uPlot.esm.js']))
    await link.click()
    await page.getByRole('heading', { name: 'queue-000', level: 1 }).waitFor()
    await page.goBack()
    await page.getByRole('link', { name: 'queue-001', exact: true }).waitFor()
    expect(errors).toEqual([])
  })

  test('the page of a queue is not sent the other queues, and draws charts that come near', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    const streams: string[] = []
    page.on('request', (request) => request.url().includes('api/events') && streams.push(request.url()))
    await page.goto(`${url}?queue=queue-007`)
    await page.getByText('Live', { exact: true }).waitFor()
    expect(streams).toEqual([expect.stringMatching(/queue=queue-007&fleet=false$/)])
    const chart = page.locator('#chart-lateness canvas')
    const drawing = () => chart.evaluate((canvas) => (canvas as unknown as { toDataURL(): string }).toDataURL())
    const blank = await drawing()
    await chart.scrollIntoViewIfNeeded()
    await expect.poll(drawing, { timeout: 10_000 }).not.toBe(blank)
    await redis.client().del(`${prefix}:queue-007:meta:shape`)
    await redis.client().srem(`${prefix}:shaped-queues`, 'queue-007')
    await page.getByText('There is no queue “queue-007” with a shape here.').waitFor()
  })
  test('all charts of a page are printed, also those below the screen', async () => {
    await fleet()
    const { page } = await stage.open({ options: { connection, prefix }, query: '?queue=queue-007', context: PHONE })
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
    const canvases = page.locator('figure.chart canvas')
    const drawings = () =>
      canvases.evaluateAll((all) => all.map((canvas) => (canvas as unknown as { toDataURL(): string }).toDataURL()))
    const before = await drawings()
    await page.pdf()
    const after = await drawings()
    expect(after.at(-1)).not.toBe(before.at(-1))
  })
})
