import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
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

  /** What a page asks for, relative to the dashboard. */
  function requestsOf(page: Page, url: string): string[] {
    const asked: string[] = []
    page.on('request', (request) => {
      const path = request.url().slice(url.length)
      asked.push(path.replace(/-[\w-]{8}\./, '.').replace(/since=.*/, 'since'))
    })
    return asked
  }

  test('asks for nothing twice or in vain, and rows are filled as they come near', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    const asked = requestsOf(page, url)
    const network = await page.context().newCDPSession(page)
    let bytes = 0
    network.on('Network.loadingFinished', ({ encodedDataLength }) => {
      bytes += encodedDataLength
    })
    await network.send('Network.enable')
    await page.goto(url)
    const rows = page.locator('tbody tr')
    await expect.poll(() => rows.count()).toBe(QUEUES)
    await page.getByText('Live', { exact: true }).waitFor()
    // Departures before the page was opened come later, and events then.
    const loaded = asked.filter((name) => !/series\?since$|^api\/events|favicon/.test(name))
    expect(loaded.toSorted()).toEqual(['', 'api/fleet', 'assets/index.css', 'assets/index.js', 'first-theme.js'])
    expect(bytes).toBeLessThan(60_000)
    expect(await page.evaluate('document.querySelectorAll("*").length')).toBeLessThan(1700)
    expect(await rows.first().locator('td').count()).toBe(10)
    expect(await rows.last().locator('td').count()).toBe(0)
    await rows.last().scrollIntoViewIfNeeded()
    await expect.poll(() => rows.last().locator('td').count()).toBe(10)
  })

  test('the page of a queue asks for each thing once, and its charts come later', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    const asked = requestsOf(page, url)
    await page.goto(`${url}?queue=queue-007`)
    await page.getByText('No job waits without a priority or a group.').waitFor()
    // Not the drawings, which are below the screen. Changes are read again once events report later ones.
    const later = /favicon|api\/events|series\?since$/
    const loaded = asked.filter((name) => !later.test(name))
    expect([...new Set(loaded)].toSorted()).toEqual([
      '?queue=queue-007',
      'api/fleet?count=0',
      'api/queues/queue-007',
      'api/queues/queue-007/jobs?state=waiting&start=0&count=10',
      ...['assets/index.css', 'assets/index.js', 'assets/queue-view.js', 'first-theme.js'],
    ])
    expect(loaded.filter((name) => name !== 'api/queues/queue-007')).toHaveLength(7)
    await page.locator('#chart-flow').scrollIntoViewIfNeeded()
    await page.locator('#chart-flow canvas').waitFor()
    expect(asked).toContain('assets/uPlot.esm.js')
  })

  test('a chart that cannot be loaded leaves the page, and its values', async () => {
    await fleet()
    const { url } = await stage.serve({ connection, prefix })
    const { page } = await stage.look('about:blank', '', PHONE)
    await page.route('**/uPlot.esm-*.js', (route) => route.abort())
    await page.goto(`${url}?queue=queue-007`)
    await page.locator('#chart-flow').scrollIntoViewIfNeeded()
    await page.getByText('The charts could not be loaded; their values are in the tables below them.').waitFor()
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
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

  test('a part of the page that is gone, as after an update, comes with the page as it is now', async () => {
    await fleet()
    const { page } = await stage.open({ options: { connection, prefix }, context: PHONE })
    await page.route('**/queue-view-*.js', (route) => route.fulfill({ status: 404 }))
    await page.getByRole('link', { name: 'queue-000', exact: true }).click()
    await page.getByRole('alert').waitFor()
    await page.unroute('**/queue-view-*.js')
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.getByRole('heading', { name: 'queue-000', level: 1 }).waitFor()
  })

  test('loads what a queue needs once its link is near', async () => {
    await fleet()
    const { page, errors } = await stage.open({ options: { connection, prefix }, context: PHONE })
    const asked: string[] = []
    page.on('request', (request) =>
      asked.push(
        request
          .url()
          .replace(/.*\//, '')
          .replace(/-[\w-]{8}\./, '.'),
      ),
    )
    const link = page.getByRole('link', { name: 'queue-000', exact: true })
    await link.focus()
    await expect.poll(() => asked).toEqual(expect.arrayContaining(['queue-view.js', 'uPlot.esm.js']))
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
    expect(await page.locator('#chart-lateness canvas').count()).toBe(0)
    await page.locator('#chart-lateness').scrollIntoViewIfNeeded()
    const isDrawn = `document.querySelector('#chart-lateness canvas')?.getContext('2d')
      .getImageData(0, 0, 300, 100).data.some((value) => value !== 0)`
    await expect.poll(() => page.evaluate(isDrawn)).toBe(true)
    await redis.client().del(`${prefix}:queue-007:meta:shape`)
    await redis.client().srem(`${prefix}:shaped-queues`, 'queue-007')
    await page.getByText('There is no queue “queue-007” with a shape here.').waitFor()
  })
  test('all charts of a page are printed, also those below the screen', async () => {
    await fleet()
    const { page } = await stage.open({ options: { connection, prefix }, query: '?queue=queue-007', context: PHONE })
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
    await page.locator('#chart-lateness canvas').waitFor({ state: 'attached' })
    const canvases = page.locator('figure.chart canvas')
    const drawings = () =>
      canvases.evaluateAll((all) => all.map((canvas) => (canvas as unknown as { toDataURL(): string }).toDataURL()))
    const before = await drawings()
    await page.pdf()
    const after = await drawings()
    expect(after.at(-1)).not.toBe(before.at(-1))
  })
})
