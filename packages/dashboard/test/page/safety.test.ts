import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts'
import { Workshop } from '../../../../test/worker/support.ts'
import { newToken } from '../../../gateway/src/index.ts'
import { describePage, PageStage } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis

const MARKUP = '<img src=x onerror="document.title=1">'

describePage('the page and those who mean no good', () => {
  const stage = new PageStage()
  const shop = new Workshop(redis)

  test('names of queues, jobs and people, and reasons, are shown as text, whatever markup they contain', async () => {
    const queue = shop.queueNamed(`q${MARKUP}`, { rate: '1/s' }, { declarer: `me ${MARKUP}` })
    const dead = shop.queueNamed(`dead${MARKUP}`, {})
    await queue.setShape({ burst: 3 }, { by: MARKUP, reason: `why ${MARKUP}` })
    await queue.addBulk(
      [1, 2, 3].map((i) => ({ name: MARKUP, data: { text: MARKUP }, opts: { jobId: `${i}${MARKUP}` } })),
    )
    const options = { connection, prefix, allowActions: true, showData: true }
    const { page, url, errors, foreign } = await stage.open({ options })
    await page.getByRole('link', { name: queue.name, exact: true }).click()
    await page.getByRole('heading', { name: queue.name, exact: true, level: 1 }).waitFor()
    await page.getByRole('cell', { name: MARKUP, exact: true }).first().waitFor()
    await page.getByRole('cell', { name: `why ${MARKUP}`, exact: true }).waitFor()
    await page
      .getByRole('cell', { name: JSON.stringify({ text: MARKUP }), exact: true })
      .first()
      .waitFor()
    await page.getByRole('button', { name: `1${MARKUP}` }).click()
    const dialog = page.getByRole('dialog', { name: `Job 1${MARKUP}`, exact: true })
    await dialog.getByText(MARKUP, { exact: true }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Clear overrides' }).click()
    await page.keyboard.press('Escape')
    await page.getByRole('tab', { name: 'Dead letters' }).click()
    await page.getByLabel('Kept in the queue').fill(dead.name)
    await page.getByRole('button', { name: 'Look' }).click()
    await page.goto(`${url}?queue=${encodeURIComponent(MARKUP)}`)
    await page.getByText(`There is no queue “${MARKUP}” with a shape here.`).waitFor()
    expect(await page.locator('img:not(.brand img)').count()).toBe(0)
    expect(foreign).toEqual([])
    expect(errors.filter((error) => !error.includes('404'))).toEqual([])
  })

  test('a wrong token is refused, the right one lets in, and who signs out is out', async () => {
    const queue = shop.queue({ rate: '5/s' })
    await queue.getShape()
    const { token, entry } = newToken('ada')
    const tokens = join(temporaryFolder(), 'tokens.json')
    writeFileSync(tokens, JSON.stringify([entry]), { mode: 0o600 })
    const { page } = await stage.open({ options: { connection, prefix, tokens } })
    await page.getByLabel('Token').fill('not-the-token-at-all-not-the-token-at-all')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByText('The token was refused.').waitFor()
    expect(await page.getByText(queue.name, { exact: true }).count()).toBe(0)
    await page.getByLabel('Token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('link', { name: queue.name, exact: true }).waitFor()
    await page.reload()
    await page.getByRole('link', { name: queue.name, exact: true }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Token').waitFor()
    await page.reload()
    await page.getByLabel('Token').waitFor()
  })

  test('without actions allowed there is nothing to change', async () => {
    const queue = shop.queue({ rate: '5/s' })
    await queue.add('job', {})
    const { page } = await stage.open({ options: { connection, prefix }, query: `?queue=${queue.name}` })
    await page.getByText('5/s', { exact: true }).first().waitFor()
    expect(await page.getByRole('button', { name: /^(Change limits|Pause|Mode|Redrive)$/ }).count()).toBe(0)
  })

  test('the page runs under its policy, which lets in no other script or style', async () => {
    const { page, errors } = await stage.open({ options: { connection, prefix: `${prefix}-none` } })
    await page.getByRole('heading', { name: 'No shaped queue yet' }).waitFor()
    expect(await page.locator('[style*="url"], [onclick], [onload]').count()).toBe(0)
    expect(errors).toEqual([])
    await page.evaluate(`
      const script = document.createElement('script')
      script.textContent = 'window.isRun = true'
      const style = document.createElement('style')
      style.textContent = 'body { display: none }'
      document.body.append(script, style)`)
    expect(await page.evaluate('window.isRun')).toBeUndefined()
    expect(await page.evaluate('getComputedStyle(document.body).display')).toBe('block')
    await expect.poll(() => errors.filter((error) => /Content Security Policy/.test(error)).length).toBe(2)
  })
})
