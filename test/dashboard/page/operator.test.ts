import { expect, test, useConcurrentTests } from '../../support/concurrent.ts'
import { useRedis } from '../../support/redis.ts'
import { Workshop } from '../../worker/support.ts'
import { describePage, PageStage } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
useConcurrentTests()

// Three of them at once.
describePage('an operator', () => {
  const stage = new PageStage()
  const shop = new Workshop(redis)
  const options = { connection, prefix, allowActions: true }

  test('drops a dead letter, and then all that match', async () => {
    const queue = shop.queue({ rate: '100/s' })
    const dead = `${queue.name}-letters`
    const worker = shop.worker(queue, async ({ data }) => Promise.reject(new Error(data)), { deadLetter: dead })
    const reasons = ['no user 1', 'no user 2', 'timed out', 'no user 3']
    for (const [i, why] of reasons.entries()) await queue.add('mail', why, { jobId: `job-${i}` })
    const letters = () => redis.client().llen(`${prefix}:${dead}:wait`)
    await expect.poll(letters).toBe(4)
    await worker.close()
    const { page, errors } = await stage.open({ options, query: `?queue=${queue.name}` })
    await page.getByRole('tab', { name: /^Dead letters 4$/ }).click()
    await page.getByRole('button', { name: 'Drop job job-0', exact: true }).click()
    const one = page.getByRole('dialog', { name: 'Drop job job-0' })
    await one.getByLabel('Why').fill('a test account')
    await one.getByRole('button', { name: 'Drop', exact: true }).click()
    await page.getByRole('tab', { name: /^Dead letters 3$/ }).waitFor()
    await page.getByRole('button', { name: 'Drop all', exact: true }).click()
    const all = page.getByRole('dialog', { name: `Drop dead letters in ${dead}` })
    await all.getByLabel('Only those whose reason contains').fill('no user')
    await all.getByLabel('Why').fill('they have left')
    await all.getByRole('button', { name: 'Drop', exact: true }).click()
    await page.getByRole('tab', { name: /^Dead letters 1$/ }).waitFor()
    await page.getByRole('cell', { name: 'timed out' }).waitFor()
    const history = page.getByRole('region', { name: 'History', exact: true })
    await history.getByRole('row', { name: /dead letter dropped job-0.* a test account/ }).waitFor()
    await history.getByRole('row', { name: /dead letters dropped 2.*no user.* they have left/ }).waitFor()
    expect(errors).toEqual([])
  })

  test('changes a group, is told at the field what is wrong with it, and clears what was set', async () => {
    const queue = shop.queue({ rate: '100/s', groups: { rate: '50/s' } })
    await queue.pause()
    for (let i = 0; i < 3; i++) await queue.add('mail', {}, { group: { id: 'acme' } })
    const { page, errors } = await stage.open({ options, query: `?queue=${queue.name}` })
    await page.getByRole('button', { name: 'acme', exact: true }).click()
    const group = page.getByRole('dialog', { name: 'Group acme' })
    await group.getByRole('button', { name: 'Change group' }).click()
    const form = page.getByRole('dialog', { name: 'Change group acme' })
    const rate = form.getByLabel('Rate')
    expect(await rate.inputValue()).toBe('50/s')
    await form.getByLabel('Why').fill('their server is slow')
    await form.getByLabel('For how long').selectOption('1 hour')
    await form.getByRole('button', { name: 'Change', exact: true }).click()
    await form.getByText('Nothing is changed yet.').waitFor()
    await rate.fill('often')
    await form.getByLabel('Weight').fill('2')
    await form.getByRole('button', { name: 'Change', exact: true }).click()
    await form
      .locator('#field-rate ~ .error')
      .getByText(/^Must be .*got 'often'/)
      .waitFor()
    expect(await rate.getAttribute('aria-invalid')).toBe('true')
    expect(await rate.getAttribute('aria-errormessage')).toBe('field-rate-error')
    expect((await queue.getGroup('acme')).overrides).toEqual({})
    await rate.fill('5/min')
    await form.getByRole('button', { name: 'Change', exact: true }).click()
    await form.waitFor({ state: 'detached' })
    await group.getByText('5/min', { exact: true }).waitFor()
    await group
      .getByText(/^by dashboard, their server is slow, at .*until/)
      .first()
      .waitFor()
    await group.getByRole('button', { name: 'Clear settings' }).click()
    const clear = page.getByRole('dialog', { name: 'Clear settings of group acme' })
    await clear.getByLabel('Why').fill('it is fast again')
    await clear.getByRole('button', { name: 'Clear', exact: true }).click()
    await clear.waitFor({ state: 'detached' })
    await group.getByText('50/s', { exact: true }).waitFor()
    expect((await queue.getGroup('acme')).overrides).toEqual({})
    // The browser itself reports the response that refused.
    expect(errors.filter((error) => !error.includes('422'))).toEqual([])
  })

  test('pauses for an hour unless told otherwise, reads when that ends, and starts in the form', async () => {
    const queue = shop.queue({ rate: '100/s', groups: {} })
    await queue.add('mail', {}, { jobId: 'mail-1', group: { id: 'acme' } })
    const { page, errors } = await stage.open({ options, query: `?queue=${queue.name}` })
    const opens = async (button: string, dialogName: string, focus: string) => {
      await page.getByRole('button', { name: button, exact: true }).first().click()
      const dialog = page.getByRole('dialog', { name: dialogName, exact: true })
      await expect.poll(() => dialog.locator(':focus').getAttribute('id')).toBe(focus)
      return dialog
    }
    const pause = await opens('Pause', 'Pause', 'action-time')
    await pause.getByText(/^Ends by itself at .*\d\d:\d\d.*\.$/).waitFor()
    await pause.getByLabel('For how long').selectOption('Until it is resumed')
    await pause.getByText('Stays until someone ends it.').waitFor()
    await pause.getByLabel('For how long').selectOption('1 hour')
    await pause.getByLabel('Why').fill('to see')
    await pause.getByRole('button', { name: 'Pause', exact: true }).click()
    await page.getByText(/^The queue is paused\. Ends by itself at/).waitFor()
    const { pausedUntil } = await queue.meter()
    const leftMs = (pausedUntil?.getTime() ?? 0) - Date.now()
    expect([leftMs > 3_000_000, leftMs <= 3_600_000]).toEqual([true, true])
    await (await opens('Change limits', 'Change limits', 'field-rate')).press('Escape')
    await (await opens('Resume', 'Resume', 'action-reason')).press('Escape')
    const group = await opens('acme', 'Group acme', 'dialog-4')
    expect(await group.getByRole('heading', { level: 2 }).getAttribute('id')).toBe('dialog-4')
    expect(errors).toEqual([])
  })

  test('is not sent to look for workers where a paused group holds all jobs', async () => {
    const queue = shop.queue({ rate: '100/s', groups: {} })
    await queue.pauseGroup('acme', { by: 'jonas', reason: 'unpaid' })
    shop.worker(queue, async () => {})
    for (let i = 0; i < 3; i++) await queue.add('mail', {}, { group: { id: 'acme' } })
    const { page } = await stage.open({ options, query: `?queue=${queue.name}` })
    const now = page.getByRole('region', { name: 'Now' })
    await now.getByText('All waiting jobs belong to groups that are held: 1 group paused. See Groups below.').waitFor()
    await page.getByRole('row', { name: /acme.*paused by jonas: unpaid/ }).waitFor()
    await page.getByRole('button', { name: 'acme', exact: true }).click()
    await page.getByRole('dialog', { name: 'Group acme' }).getByText('Paused.', { exact: true }).waitFor()
  })

  test('sees in the table why a queue is full, not only that it is', async () => {
    const queue = shop.queue({ rate: '100/s', capacity: 1 })
    await queue.pauseUntil(Date.now() + 600_000, { by: 'jonas', reason: 'credentials are rotated' })
    shop.worker(queue, async () => {})
    await expect.poll(() => redis.client().hlen(queue.toKey('meta:workers'))).toBe(1)
    await queue.add('mail', {})
    const { page } = await stage.open({ options })
    const row = page.getByRole('row', { name: queue.name })
    await row.getByText('Full', { exact: true }).waitFor()
    await row.getByText(/^for another .*: credentials are rotated$/).waitFor()
  })
})
