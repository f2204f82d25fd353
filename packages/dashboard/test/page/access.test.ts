import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { Workshop } from '../../../../test/worker/support.ts'
import { describePage, PageStage } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

interface Violation {
  readonly id: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[]
}

/** What axe finds wrong with a page. */
async function violationsOf(page: Page): Promise<unknown[]> {
  await page.evaluate(AXE)
  const found = (await page.evaluate('axe.run().then(({ violations }) => violations)')) as Violation[]
  return found.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, failureSummary }) => [html, failureSummary]) }))
}

/** What has focus, as people would name it. */
function focused(page: Page): Promise<string> {
  return page.evaluate(
    `(document.activeElement?.getAttribute('aria-label') || document.activeElement?.innerText || document.activeElement?.id || '').trim()`,
  )
}

describePage('the page for everybody', () => {
  const stage = new PageStage()
  const shop = new Workshop(redis)
  const options = { connection, prefix, allowActions: true }

  /** A queue in which something of everything is to be seen. */
  async function fullQueue(name: string) {
    const queue = shop.queueNamed(name, {
      ...{ rate: '1/s', burst: 2, capacity: 40, concurrency: 3 },
      limits: [{ name: 'per-minute', rate: '200/min', burst: 20 }],
    })
    await queue.addBulk(
      Array.from({ length: 40 }, () => ({ name: 'a-job-with-a-rather-long-name-of-its-own', data: {} })),
    )
    await queue.offer('refused', {})
    await queue.setShape({ rate: '30/min' }, { by: 'ada', reason: 'a reason that is a little longer than others are' })
    shop.worker(queue, async () => {}, { concurrency: 2 })
    return queue
  }

  test('axe finds nothing wrong with the forms of a group, one of them with an error', async () => {
    const queue = shop.queue({ rate: '100/s', groups: { rate: '50/s' } })
    await queue.pause()
    await queue.setGroup('acme', { weight: 2 }, { by: 'ada', reason: 'a plan' })
    await queue.add('mail', {}, { group: { id: 'acme' } })
    const { page } = await stage.open({ options, context: { bypassCSP: true }, query: `?queue=${queue.name}` })
    await page.getByRole('button', { name: 'acme', exact: true }).click()
    await page.getByRole('button', { name: 'Change group' }).click()
    const form = page.getByRole('dialog', { name: 'Change group acme' })
    await form.getByLabel('Rate').fill('often')
    await form.getByLabel('Why').fill('their server is slow')
    await form.getByRole('button', { name: 'Change', exact: true }).click()
    await form.locator('[aria-invalid=true]').waitFor()
    expect(await violationsOf(page)).toEqual([])
    await form.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('button', { name: 'Clear settings' }).click()
    await page.getByRole('dialog', { name: 'Clear settings of group acme' }).waitFor()
    expect(await violationsOf(page)).toEqual([])
  })

  test.each(['light', 'dark'] as const)('axe finds nothing wrong in %s', async (colorScheme) => {
    const queue = await fullQueue(`axe-${colorScheme}`)
    // Its source is no file of the dashboard: the policy would not let it in.
    const context = { colorScheme, bypassCSP: true, reducedMotion: 'no-preference' as const }
    const { page, url } = await stage.open({ options, context })
    await page.getByRole('link', { name: queue.name, exact: true }).waitFor()
    expect(await violationsOf(page)).toEqual([])
    await page.goto(`${url}?queue=${queue.name}`)
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
    await page.locator('#chart-flow summary').click()
    expect(await violationsOf(page)).toEqual([])
    await page.getByRole('button', { name: 'Change limits' }).click()
    expect(await violationsOf(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.getByRole('cell').getByRole('button').last().click()
    await page.getByText('How the wait divides').waitFor()
    expect(await violationsOf(page)).toEqual([])
  })

  test.each([
    [1400, 'light'],
    [390, 'dark'],
  ] as const)('what is out of the ordinary can be read at %i px in %s', async (width, colorScheme) => {
    const queue = await fullQueue(`read-${width}`)
    const context = { viewport: { width, height: 844 }, colorScheme, bypassCSP: true }
    const { page } = await stage.open({ options, context })
    const row = page.getByRole('row', { name: queue.name })
    await row.getByText('Override', { exact: true }).waitFor()
    await row.getByText(/a reason that is a little longer than others are$/).waitFor()
    const cut = '[...document.querySelectorAll(".why")].filter((one) => one.scrollWidth > one.clientWidth).length'
    expect(await page.evaluate(cut)).toBe(0)
    const size = 'Number.parseFloat(getComputedStyle(document.querySelector(".badges .badge")).fontSize)'
    expect(await page.evaluate(size)).toBeGreaterThanOrEqual(11.5)
    expect(await violationsOf(page)).toEqual([])
  })

  test('at 375 px nothing scrolls sideways but the tables within themselves', async () => {
    const queue = await fullQueue('a-queue-with-a-name-that-is-longer-than-any-phone-is-wide')
    const context = { viewport: { width: 375, height: 812 }, hasTouch: true, isMobile: true }
    const { page, url } = await stage.open({ options, context })
    const width = () => page.evaluate('document.documentElement.scrollWidth')
    await page.getByRole('link', { name: queue.name, exact: true }).waitFor()
    expect(await width()).toBe(375)
    await page.goto(`${url}?queue=${queue.name}`)
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
    await page
      .getByRole('cell', { name: /a reason that/ })
      .first()
      .waitFor()
    expect(await width()).toBe(375)
    await page.evaluate('scrollTo(0, 0)')
    // Without scrolling it is seen what holds the queue, and a job is found on one line.
    const sentence = await page.locator('.facts .hold').boundingBox()
    expect((sentence?.y ?? 999) + (sentence?.height ?? 0)).toBeLessThan(812 / 2)
    const find = await page.getByRole('button', { name: 'Explain', exact: true }).boundingBox()
    const field = await page.getByLabel('Explain job').boundingBox()
    expect([find?.y, (find?.x ?? 999) + (find?.width ?? 0) < 375]).toEqual([field?.y, true])
    await page.getByRole('button', { name: 'Change limits' }).click()
    expect(await width()).toBe(375)
    const box = await page.getByRole('dialog').boundingBox()
    expect(box?.width).toBeLessThanOrEqual(375)
    await page.keyboard.press('Escape')
    const emptyUrl = (await stage.serve({ connection, prefix: `${prefix}-none` })).url
    await page.goto(emptyUrl)
    await page.getByRole('heading', { name: 'No shaped queue yet' }).waitFor()
    expect(await width()).toBe(375)
  })

  test('everything can be done with the keyboard', async () => {
    const queue = await fullQueue('keys')
    const { page } = await stage.open({ options })
    const row = page.getByRole('link', { name: queue.name, exact: true })
    await row.waitFor()
    await page.keyboard.press('Tab')
    expect(await focused(page)).toBe('Skip to the content')
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    expect(await focused(page)).toMatch(/^Need a look/)
    await page.keyboard.press('Tab')
    expect(await focused(page)).toBe('filter')
    await page.keyboard.type('keys')
    await page.getByText(/^1 of \d+$/).waitFor()
    await row.focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: queue.name, exact: true, level: 1 }).waitFor()
    await page.keyboard.press('Tab')
    expect(await focused(page)).toBe('All queues')
    const change = page.getByRole('button', { name: 'Change limits' })
    await change.focus()
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog')
    for (let steps = 0; steps < 14; steps += 1) {
      await page.keyboard.press('Tab')
      // Past the last control comes the browser's own, then the first again: never the page behind.
      const isInside = `document.activeElement === document.body || document.activeElement?.closest('dialog') !== null`
      expect(await page.evaluate(isInside)).toBe(true)
    }
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    expect(await focused(page)).toBe('Change limits')
    await page.getByRole('tab', { name: /^Waiting \d/ }).focus()
    await page.keyboard.press('ArrowRight')
    expect(await page.getByRole('tab', { name: 'Prioritized' }).getAttribute('aria-selected')).toBe('true')
    await page.keyboard.press('End')
    await page.getByRole('tabpanel', { name: 'Dead letters' }).waitFor()
  })

  test('a mark of a change tells of it to who reaches it with the keyboard', async () => {
    const queue = await fullQueue('marks')
    const { page } = await stage.open({ options, query: `?queue=${queue.name}` })
    const mark = page.getByRole('button', { name: /^2 changes: .*Override/ }).filter({ hasText: 'rate 30/min' })
    await mark.focus()
    await page.keyboard.press('Shift+Tab')
    await page.keyboard.press('Tab')
    await mark.getByText(/a reason that is a little longer/).waitFor()
  })

  test('who wants less motion gets none, and colours can be chosen', async () => {
    const queue = await fullQueue('still')
    const context = { reducedMotion: 'reduce' as const, colorScheme: 'light' as const }
    const { page } = await stage.open({ options, query: `?queue=${queue.name}`, context })
    await page.getByText(/^burst/).waitFor()
    expect(await page.evaluate('document.getAnimations().length')).toBe(0)
    const background = () => page.evaluate('getComputedStyle(document.body).backgroundColor')
    const light = await background()
    await page.getByLabel('Colours').selectOption('dark')
    const dark = await background()
    expect(dark).not.toBe(light)
    await page.reload()
    expect(await background()).toBe(dark)
  })

  test('two hundred queues can be filtered and sorted', async () => {
    const own = `${prefix}-many`
    const client = redis.client()
    const shapes = Array.from({ length: 200 }, (_, i) => `queue-${String(i).padStart(3, '0')}`)
    for (const name of shapes) {
      await client.sadd(`${own}:shaped-queues`, name)
      await client.hset(`${own}:${name}:meta:shape`, 'rate', '1')
    }
    const { page } = await stage.open({ options: { connection, prefix: own } })
    await expect.poll(() => page.locator('tbody tr').count()).toBe(200)
    await page.getByLabel('Filter').fill('queue-19')
    await page.getByText('10 of 200').waitFor()
    const first = () => page.locator('tbody tr').first().getByRole('link').textContent()
    await page.getByRole('button', { name: 'Queue' }).click()
    expect(await first()).toBe('queue-190')
    await page.getByRole('button', { name: 'Queue' }).click()
    expect(await first()).toBe('queue-199')
  })
})
