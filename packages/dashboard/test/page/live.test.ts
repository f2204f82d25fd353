import { setTimeout as delay } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import { ShapedQueue } from '../../../../src/index.ts'
import { shardPrefix } from '../../../../src/redis/shards.ts'
import { ShardShop } from '../../../../test/sharding/support/shop.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../../test/support/concurrent.ts'
import { fakeCluster } from '../../../../test/support/fake-cluster.ts'
import { startProxy } from '../../../../test/support/proxy.ts'
import { connectionOptions, FOLLOWED_AT_ONCE, useRedis } from '../../../../test/support/redis.ts'
import { departuresOf, jobs, Workshop } from '../../../../test/worker/support.ts'
import { findFreePort } from '../../../../workers/services/free-port.ts'
import { startRedis } from '../../../../workers/services/redis.ts'
import { describePage, PageStage } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
useConcurrentTests()

/** What is drawn, and what is said of it. */
async function chartOf(page: Page, id: string) {
  const canvas = page.locator(`#${id} canvas`)
  const image = await canvas.evaluate((element) => (element as unknown as { toDataURL(): string }).toDataURL())
  return { image, text: await page.locator(`#${id}-text`).textContent() }
}

// Three of them at once.
describePage('the page while jobs flow', () => {
  const stage = new PageStage()
  const shop = new Workshop(redis)

  test('shows the fleet and a queue, without an error and without a request to elsewhere', async () => {
    // A name that is no part of those of the tests beside this one: rows and links are found by it.
    const queue = shop.queueNamed('shown', { rate: '20/s', capacity: 500 })
    await queue.addBulk(Array.from({ length: 480 }, () => ({ name: 'job', data: {} })))
    shop.worker(queue, async () => delay(5), { concurrency: 4 })
    const context = { reducedMotion: 'no-preference' as const }
    const { page, errors, foreign } = await stage.open({ options: { connection, prefix }, mount: '/ops', context })
    const row = page.getByRole('row', { name: queue.name })
    await row.getByText('20/s', { exact: true }).waitFor()
    await row.getByText(/of 500$/).waitFor()
    await page.getByRole('link', { name: queue.name }).click()
    await page.getByRole('heading', { name: queue.name, level: 1 }).waitFor()
    await page.getByText('The rate has held the next job').waitFor()
    expect(await page.title()).toBe(`${queue.name} · Sluice`)
    await page.goBack()
    await row.waitFor()
    expect({ errors, foreign }).toEqual({ errors: [], foreign: [] })
  })

  test('very many queues are turned page by page, sorted and filtered', async () => {
    const queue = shop.queue({ rate: '1/h' })
    await queue.getShape()
    const base = `${prefix}:many`
    const batch = redis.client().pipeline()
    for (let i = 0; i < 320; i++) {
      const name = `copy-${String(i).padStart(3, '0')}`
      batch.copy(queue.toKey('meta:shape'), `${base}:${name}:meta:shape`).sadd(`${base}:shaped-queues`, name)
      if (i === 250) batch.lpush(`${base}:${name}:wait`, 'one', 'two')
    }
    await batch.exec()
    const { page, errors } = await stage.open({ options: { connection, prefix: base } })
    const row = (i: number) => page.getByRole('row', { name: `copy-${i}` })
    await page.getByText('1 to 100 of 320').waitFor()
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText('101 to 200 of 320').waitFor()
    await row(198).waitFor()
    await page.getByRole('button', { name: 'Depth' }).click()
    await page.getByText('1 to 100 of 320').waitFor()
    await row(250).waitFor()
    await page.getByLabel('Filter').fill('no worker')
    await page.getByText('1 to 1 of 1').waitFor()
    expect(await page.getByRole('row').count()).toBe(2)
    await page.getByLabel('Filter').fill('')
    await page.getByText('1 to 100 of 320').waitFor()
    await page.getByRole('button', { name: /^Need a look/ }).click()
    await page.getByText('1 to 1 of 1').waitFor()
    await row(250).getByText('jobs wait, and no worker has reported').waitFor()
    expect(errors).toEqual([])
  })

  test('groups: what holds them, which have the most jobs, and each with its next jobs', async () => {
    const queue = shop.queue({ rate: '1/h', groups: { rate: '1/h' } })
    const inGroup = (id: string, count: number) =>
      Array.from({ length: count }, () => ({ name: 'job', data: {}, opts: { group: { id } } }))
    const [first] = await queue.addBulk([...inGroup('acme <b>', 3), ...inGroup('tiny', 1)])
    await queue.pauseGroup('acme <b>', { by: 'ann', reason: 'unpaid' })
    const { page, errors } = await stage.open({ options: { connection, prefix }, query: `?queue=${queue.name}` })
    const card = page.getByRole('region', { name: 'Groups', exact: true })
    const row = card.getByRole('row', { name: /acme/ })
    await row.getByText('75%').waitFor()
    await row.getByText('paused by ann: unpaid').waitFor()
    await row.getByRole('button', { name: 'acme <b>' }).click()
    const dialog = page.getByRole('dialog', { name: 'Group acme <b>' })
    await dialog.getByText('Paused.').waitFor()
    await dialog.getByText('3, 75% of those of all groups').waitFor()
    await dialog.getByRole('button', { name: first!.id as string, exact: true }).click()
    const explained = page.getByRole('dialog', { name: `Job ${first!.id}` })
    await explained.getByText('The pause of group acme <b> has held it').waitFor()
    await explained.getByText('acme <b>: 0 of its jobs before this one').waitFor()
    await page.keyboard.press('Escape')
    await page.keyboard.press('Escape')
    const jobs = page.getByRole('tabpanel', { name: 'In groups 4' }).getByRole('row')
    await jobs
      .filter({ has: page.getByRole('button', { name: first!.id as string, exact: true }) })
      .getByRole('cell', { name: 'acme <b>' })
      .waitFor()
    await card.getByLabel('Find group').fill('nobody')
    await card.getByRole('button', { name: 'Show' }).click()
    await page.getByRole('dialog', { name: 'Group nobody' }).getByText('No job waits.').waitFor()
    expect(errors).toEqual([])
  })

  test('a sharded queue is one queue, its shards are a table, and an action is for all of them', async () => {
    const sharded = new ShardShop({ connection, prefix }).queue('sharded', {
      shards: 3,
      shape: { rate: '3/min', capacity: 90 },
    })
    await sharded.waitUntilReady()
    const [job] = await sharded.addBulk(Array.from({ length: 6 }, () => ({ name: 'job', data: {} })))
    const { page, errors } = await stage.open({ options: { connection, prefix, allowActions: true } })
    const row = page.getByRole('row', { name: 'sharded' })
    await row.getByText(/^6 of 90/).waitFor()
    expect(await row.count()).toBe(1)
    await page.getByRole('link', { name: 'sharded', exact: true }).click()
    const shards = page.getByRole('region', { name: 'Shards' }).locator('tbody').getByRole('row')
    await expect.poll(() => shards.count()).toBe(3)
    await page.getByRole('tab', { name: /^Waiting 6/ }).waitFor()
    await page.getByRole('button', { name: job?.id as string, exact: true }).click()
    await page.getByRole('dialog', { name: `Job ${job?.id}` }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Pause', exact: true }).click()
    const dialog = page.getByRole('dialog', { name: /^Pause/ })
    await dialog.getByLabel('Why').fill('a test')
    await dialog.getByRole('button', { name: 'Pause', exact: true }).click()
    await expect.poll(() => shards.filter({ hasText: /Pause$/ }).count()).toBe(3)
    expect(errors).toEqual([])
  })

  test('the page of a sharded queue says which shard does not answer, and goes on once it does', async () => {
    const sharded = new ShardShop({ connection, prefix }).queue('lame', {
      shards: 3,
      shape: { rate: '3/min', capacity: 90 },
    })
    await sharded.waitUntilReady()
    const away = new Set([shardPrefix(prefix, 'lame', 1), `${prefix}:lame:`])
    const { client } = fakeCluster(redis.client(), away)
    const { page } = await stage.open({ options: { connection: client, prefix }, query: '?queue=lame' })
    await page.getByText('Unread', { exact: true }).waitFor()
    await page.getByText('Live', { exact: true }).waitFor()
    const shards = page.getByRole('region', { name: 'Shards', exact: true }).locator('tbody').getByRole('row')
    await expect.poll(() => shards.count()).toBe(2)
    const history = page.getByRole('region', { name: 'History', exact: true })
    await history.getByText('Not read yet.').waitFor()
    away.clear()
    await history.getByRole('row', { name: /Declared/ }).waitFor()
    await expect.poll(() => shards.count()).toBe(3)
    expect(await page.getByText('Unread', { exact: true }).isVisible()).toBe(false)
  })

  test('a group is paused and resumed in its dialog, with the reason in the history', async () => {
    const queue = shop.queue({ rate: '1/h', groups: {} })
    for (const id of ['acme <b>', 'tiny']) await queue.add('job', {}, { group: { id } })
    const options = { connection, prefix, allowActions: true, actor: () => 'ada' }
    const { page, errors } = await stage.open({ options, query: `?queue=${queue.name}` })
    const row = page.getByRole('region', { name: 'Groups', exact: true }).getByRole('row', { name: /acme/ })
    await row.getByRole('button', { name: 'acme <b>' }).click()
    const group = page.getByRole('dialog', { name: 'Group acme <b>', exact: true })
    const change = async (name: string) => {
      await group.getByRole('button', { name: `${name} group`, exact: true }).click()
      const dialog = page.getByRole('dialog', { name: `${name} group acme <b>`, exact: true })
      const submit = dialog.getByRole('button', { name, exact: true })
      await submit.click()
      // Why is asked for: the browser keeps the dialog.
      expect(await dialog.isVisible()).toBe(true)
      await dialog.getByLabel('Why').fill('an <i>invoice</i>')
      if (name === 'Pause') await dialog.getByLabel('For how long').selectOption('Until it is resumed')
      await submit.click()
      await dialog.waitFor({ state: 'detached' })
    }
    const resume = group.getByRole('button', { name: 'Resume group' })
    expect(await resume.isVisible()).toBe(false)
    await change('Pause')
    await group.getByText('Paused.').waitFor()
    await group.getByRole('button', { name: 'Pause group' }).waitFor({ state: 'hidden' })
    expect((await queue.getGroup('acme <b>')).overrides.paused).toMatchObject({
      by: 'ada',
      reason: 'an <i>invoice</i>',
    })
    expect(await queue.getGroupStatus('tiny')).toBe('waiting')
    await change('Resume')
    await group.getByText('In line.').waitFor()
    await resume.waitFor({ state: 'hidden' })
    expect(await queue.getGroupStatus('acme <b>')).toBe('waiting')
    await page.keyboard.press('Escape')
    for (const what of ['acme <b> paused', 'acme <b> resumed']) {
      await page.getByRole('row').filter({ hasText: what }).getByText('an <i>invoice</i>', { exact: true }).waitFor()
    }
    expect(errors).toEqual([])
  })

  test('a group can not be changed where actions are not allowed', async () => {
    const queue = shop.queue({ rate: '1/h', groups: {} })
    await queue.add('job', {}, { group: { id: 'acme' } })
    const { page } = await stage.open({ options: { connection, prefix }, query: `?queue=${queue.name}` })
    await page.getByRole('region', { name: 'Groups', exact: true }).getByRole('button', { name: 'acme' }).click()
    const group = page.getByRole('dialog', { name: 'Group acme' })
    await group.getByText('In line.').waitFor()
    expect(await group.getByRole('button', { name: 'Pause group' }).count()).toBe(0)
  })

  test('charts move', async () => {
    const queue = shop.queue({ rate: '20/s' })
    await queue.addBulk(Array.from({ length: 400 }, () => ({ name: 'job', data: {} })))
    shop.worker(queue, async () => {}, { concurrency: 4 })
    const { page } = await stage.open({ options: { connection, prefix }, query: `?queue=${queue.name}` })
    await page.getByText(/Departures: [\d.]+\/s now/).waitFor({ state: 'attached' })
    await page.locator('#chart-depth').scrollIntoViewIfNeeded()
    const before = { flow: await chartOf(page, 'chart-flow'), depth: await chartOf(page, 'chart-depth') }
    const text = page.locator('#chart-depth-text')
    await expect.poll(() => text.textContent()).not.toBe(before.depth.text)
    const after = { flow: await chartOf(page, 'chart-flow'), depth: await chartOf(page, 'chart-depth') }
    expect(after.flow.image).not.toBe(before.flow.image)
    expect(after.depth.image).not.toBe(before.depth.image)
    expect(after.flow.text).toMatch(/Rate: 20\/s now/)
  })

  test('a rate that is changed in the page is the rate of the workers, with its reason in the history', async () => {
    const queue = shop.queue({ rate: '1/s' })
    await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'job', data: {} })))
    const started = departuresOf(shop.worker(queue, async () => {}, { concurrency: 4 }))
    const options = { connection, prefix, allowActions: true, actor: () => 'ada' }
    const { page } = await stage.open({ options, query: `?queue=${queue.name}` })
    await page.getByRole('button', { name: 'Change limits' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change limits' })
    await dialog.getByLabel('Rate').fill('50/s')
    await dialog.getByRole('button', { name: 'Change' }).click()
    // Why is asked for: the browser keeps the dialog.
    expect(await dialog.isVisible()).toBe(true)
    await dialog.getByLabel('Why').fill('a <b>test</b>')
    await dialog.getByRole('button', { name: 'Change' }).click()
    await dialog.waitFor({ state: 'detached' })
    const from = performance.now()
    await started.reach(started.all.length + 25)
    // At the old rate they would take 25 s.
    expect(performance.now() - from).toBeLessThan(15_000)
    await page.getByRole('cell', { name: 'a <b>test</b>', exact: true }).waitFor()
    await page.getByRole('cell', { name: 'ada', exact: true }).waitFor()
    expect((await queue.getShape())?.overrides.rate).toMatchObject({ by: 'ada', reason: 'a <b>test</b>' })
  })

  test('places for groups of which no job runs, and a slow start, are changed in the page', async () => {
    const queue = shop.queue({ rate: '1/s', concurrency: 5, groups: { weight: 2 } })
    const { page } = await stage.open({
      options: { connection, prefix, allowActions: true },
      query: `?queue=${queue.name}`,
    })
    await page.getByRole('button', { name: 'Change limits' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change limits' })
    await dialog.getByLabel('Keep free').fill('2')
    await dialog.getByLabel('Slow start').fill('{')
    await dialog.getByLabel('Why').fill('to see')
    await dialog.getByRole('button', { name: 'Change' }).click()
    await dialog.getByRole('alert').getByText('Slow start must be JSON').waitFor()
    await dialog.getByLabel('Slow start').fill('{"from":0.1,"overMs":60000}')
    await dialog.getByRole('button', { name: 'Change' }).click()
    await dialog.waitFor({ state: 'detached' })
    const rampUp = { from: 0.1, overMs: 60_000 }
    expect(await queue.getShape()).toMatchObject({ groups: { weight: 2, keepFree: 2 }, rampUp })
  })

  test('a pause and its end, a refusal of the server, and a redrive that has nothing to do', async () => {
    const queue = shop.queue({ rate: '1/s' })
    const options = { connection, prefix, allowActions: true }
    const { page } = await stage.open({ options, query: `?queue=${queue.name}` })
    const change = async (name: string, more: Readonly<Record<string, string>> = {}) => {
      await page.getByRole('button', { name, exact: true }).click()
      const dialog = page.getByRole('dialog', { name })
      for (const [label, value] of Object.entries(more)) await dialog.getByLabel(label).fill(value)
      if (name === 'Pause') await dialog.getByLabel('For how long').selectOption('Until it is resumed')
      await dialog.getByLabel('Why').fill('to see')
      await dialog.locator('button[type=submit]').click()
      return dialog
    }
    await (await change('Pause')).waitFor({ state: 'detached' })
    await page.getByText('Paused', { exact: true }).first().waitFor()
    expect(await queue.isPaused()).toBe(true)
    await (await change('Resume')).waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Resume', exact: true }).waitFor({ state: 'hidden' })
    expect(await queue.isPaused()).toBe(false)
    const refused = await change('Change limits', { Rate: 'fast' })
    await refused
      .getByRole('alert')
      .getByText(/^Must be '50/)
      .waitFor()
    await refused.getByRole('button', { name: 'Cancel' }).click()
    await (await change('Redrive', { 'Queue of dead letters': `${queue.name}-dead` })).waitFor({ state: 'detached' })
    await page.getByText('The redrive has begun.').waitFor()
  })

  test('a failed job shows why, and is retried; another is removed, a delayed one promoted and cancelled', async () => {
    const queue = shop.queue({ rate: '100/s', capacity: 4 })
    const worker = shop.worker(queue, async (job) => {
      await job.log('tried <b>once</b>')
      throw new Error(`no <i>route</i> for ${job.name}`)
    })
    for (const jobId of ['ann', 'bob']) await queue.add(jobId, { secret: 'canary' }, { jobId })
    await expect.poll(() => queue.getFailedCount()).toBe(2)
    await worker.close()
    await queue.add('later', {}, { jobId: 'cid', delay: 3_600_000 })
    const options = { connection, prefix, allowActions: true, actor: () => 'ada' }
    const { page, errors } = await stage.open({ options, query: `?queue=${queue.name}` })
    const open = async (tab: RegExp, id: string) => {
      await page.getByRole('tab', { name: tab }).click()
      await page.getByRole('cell').getByRole('button', { name: id, exact: true }).click()
      return page.getByRole('dialog', { name: `Job ${id}`, exact: true })
    }
    const change = async (name: string, id: string, button = name) => {
      await page.getByRole('button', { name: `${name} job`, exact: true }).click()
      const dialog = page.getByRole('dialog', { name: `${name} job ${id}`, exact: true })
      await dialog.getByLabel('Why').fill(`to ${name}`)
      await dialog.getByRole('button', { name: button, exact: true }).click()
      await dialog.waitFor({ state: 'detached' })
    }
    const ann = await open(/^Failed 2$/, 'ann')
    await ann.getByRole('region', { name: 'Stack traces' }).getByText('Error: no <i>route</i> for ann').waitFor()
    await ann.getByRole('region', { name: 'Log' }).getByText('tried <b>once</b>').waitFor()
    expect(await ann.getByText('canary').count()).toBe(0)
    expect(await ann.getByRole('button', { name: 'Promote job' }).count()).toBe(0)
    await change('Retry', 'ann')
    await ann.getByText('waiting', { exact: true }).waitFor()
    await ann.getByRole('button', { name: 'Retry job' }).waitFor({ state: 'hidden' })
    await page.keyboard.press('Escape')
    const bob = await open(/^Failed 1$/, 'bob')
    await change('Remove', 'bob')
    await bob.getByText('There is no job bob in this queue').waitFor()
    await page.keyboard.press('Escape')
    const cid = await open(/^Delayed 1$/, 'cid')
    await change('Promote', 'cid')
    await cid.getByText('waiting', { exact: true }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('tab', { name: /^Waiting 2$/ }).waitFor()
    const waiting = await open(/^Waiting 2$/, 'cid')
    await change('Cancel', 'cid', 'Cancel job')
    await waiting.getByText('failed', { exact: true }).waitFor()
    await page.keyboard.press('Escape')
    for (const [text, why] of Object.entries({
      'retried ann': 'Retry',
      'removed bob': 'Remove',
      'promoted cid': 'Promote',
      'cancelled cid': 'Cancel',
    })) {
      const row = page.getByRole('region', { name: 'History' }).getByRole('row', { name: new RegExp(text) })
      await row.getByText(`to ${why}`).waitFor()
    }
    expect(await Promise.all(['ann', 'bob', 'cid'].map((id) => queue.getJobState(id)))).toEqual([
      ...['waiting', 'unknown', 'failed'],
    ])
    // Told by the browser itself: the removed job was asked for once more.
    expect(errors.filter((error) => !error.includes('404'))).toEqual([])
  })

  test.each([1400, 390])('a queue that fails and one that is bypassed say so in red, %i px wide', async (width) => {
    const [failing, bypassed] = [shop.queue({ rate: '10/s', capacity: 50 }), shop.queue({ rate: '10/s' })]
    const client = redis.client()
    const worker = shop.worker(failing, async () => Promise.reject(new Error('connect ECONNREFUSED 10.0.0.5:25')))
    await failing.addBulk(Array.from({ length: 6 }, (_, i) => ({ name: 'mail', data: i })))
    await expect.poll(() => client.hget(failing.toKey('meta:starts'), 'failed')).toBe('6')
    await bypassed.addBulk(jobs(3))
    const nowMs = Number((await client.time())[0]) * 1000
    const clients = [{ name: 'old-mailer', address: '10.0.0.7:51234' }]
    await client.hset(bypassed.toKey('meta:workers'), 'w1', JSON.stringify({ seen: nowMs, bypassedBy: clients }))
    await client.hset(bypassed.toKey('meta:meter'), {
      ...{ bypassedAt: nowMs * 1000, bypassedFrom: (nowMs - 10_000) * 1000, bypassedTotal: 67, bypassedBase: 0 },
      ...{ bypassedJob: '1', departedTotal: 21 },
    })
    const context = { viewport: { width, height: 900 } }
    const { page, url, errors } = await stage.open({ options: { connection, prefix }, context })
    const row = (name: string) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) })
    await row(failing.name).getByText('Failing', { exact: true }).waitFor()
    const why = row(failing.name).getByText(
      '100% failed: connect ECONNREFUSED 10.0.0.5:25 (of 6 attempts in 5 min, 6 jobs',
    )
    await why.waitFor()
    await row(bypassed.name).getByText('Bypassed', { exact: true }).waitFor()
    await row(bypassed.name).getByText('6.7/s start past the meter, by "old-mailer" at 10.0').waitFor()
    await row(bypassed.name).getByText('+ 6.7/s past the meter').waitFor()
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
    await page.goto(`${url}?queue=${bypassed.name}`)
    const facts = page.getByRole('region', { name: 'Now' })
    const sentence = facts.getByText(/^6\.7\/s start past the meter, .*: the rate may be exceeded\./)
    await sentence.waitFor()
    expect(await sentence.getAttribute('data-cause')).toBe('failed')
    expect(await page.getByText('about to take the next job').count()).toBe(0)
    await page.goto(`${url}?queue=${failing.name}`)
    await page.getByText(/^100% in 5 min; 6 in all, 6 jobs permanently, 0 completed$/).waitFor()
    await page
      .getByText(/^100% failed: connect ECONNREFUSED .*, 6 jobs permanently\)\. No job waits\.$/)
      .and(page.locator('[data-cause="failed"]'))
      .waitFor()
    await page.getByRole('tab', { name: /^Failed 6$/ }).click()
    const reasons = page.getByRole('list', { name: 'Reasons' }).getByRole('listitem')
    await expect.poll(() => reasons.allTextContents()).toEqual(['connect ECONNREFUSED 10.0.0.5:256, 100%'])
    await reasons.getByRole('button').click()
    expect(await page.getByLabel('Reason contains').inputValue()).toBe('connect ECONNREFUSED')
    await page.getByText('6 match', { exact: true }).waitFor()
    expect(errors).toEqual([])
    await worker.close()
  })

  test('failed jobs with a reason are retried together, others go to the dead letters and come back', async () => {
    const queue = shop.queue({ rate: '100/s', capacity: 10 })
    const dead = `${queue.name}-letters`
    const reasons = ['ECONNREFUSED <1>', 'no user', 'ECONNREFUSED <2>']
    const worker = shop.worker(queue, async ({ data }) => Promise.reject(new Error(data)))
    for (const [i, why] of reasons.entries()) await queue.add('mail', why, { jobId: `job-${i}` })
    await expect.poll(() => queue.getFailedCount()).toBe(3)
    await worker.close()
    // Only reports: what failed before is where it was.
    const client = redis.client()
    const reports = shop.worker(queue, async () => {}, { deadLetter: dead })
    const reported = () => client.hexists(queue.toKey('meta:starts'), `dead:${dead}`)
    await expect.poll(reported).toBe(1)
    await reports.close()
    const options = { connection, prefix, allowActions: true }
    const { page, errors } = await stage.open({ options, query: `?queue=${queue.name}` })
    await page.getByRole('tab', { name: /^Failed 3$/ }).click()
    await page.getByLabel('Reason contains').fill('ECONNREFUSED')
    await page.getByText('2 match', { exact: true }).waitFor()
    expect(await page.getByRole('cell', { name: 'no user' }).count()).toBe(0)
    const change = async (button: string, title: RegExp | string, submit: string) => {
      await page.getByRole('button', { name: button, exact: true }).click()
      const dialog = page.getByRole('dialog', { name: title })
      await dialog.getByLabel('Why').fill('to see')
      await dialog.getByRole('button', { name: submit, exact: true }).click()
      await dialog.waitFor({ state: 'detached' })
    }
    await change('Retry all', 'Retry 2 failed jobs', 'Retry')
    await page.getByRole('tab', { name: /^Waiting 2$/ }).waitFor()
    await page.getByLabel('Reason contains').fill('')
    await page.getByRole('cell', { name: 'no user' }).waitFor()
    await change('All to dead letters', 'Move 1 failed job', 'Move')
    await page.getByRole('tab', { name: /^Failed 0$/ }).waitFor()
    await page.getByRole('tab', { name: /^Dead letters/ }).click()
    expect(await page.getByLabel('Kept in the queue').inputValue()).toBe(dead)
    await page.getByRole('tab', { name: /^Dead letters 1$/ }).waitFor()
    await change('Redrive job job-1', 'Redrive job job-1', 'Redrive')
    await page.getByRole('tab', { name: /^Waiting 3$/ }).waitFor()
    await page
      .getByRole('row', { name: /retried 2, failedReason ECONNREFUSED/ })
      .getByText('to see')
      .waitFor()
    expect(errors).toEqual([])
  })

  test('an unknown queue says so, and is shown once there is one', async () => {
    const { page, errors } = await stage.open({ options: { connection, prefix }, query: '?queue=mail-typo' })
    await page.getByText('There is no queue “mail-typo” with a shape here.').waitFor()
    await page.getByText('Live', { exact: true }).waitFor()
    expect(await page.getByRole('region', { name: 'Now' }).count()).toBe(0)
    const queue = shop.keep(new ShapedQueue('mail-typo', { connection, prefix, shape: { rate: '7/min' } }))
    await queue.getShape()
    await page.getByRole('region', { name: 'Now' }).getByText('7/min', { exact: true }).waitFor()
    // Told by the browser itself: the queue was asked for.
    expect(errors.filter((error) => !error.includes('404'))).toEqual([])
  })

  test('a page is at most three screens high, jobs before charts', async () => {
    const queue = shop.queue({ rate: '1/s', groups: {}, capacity: 100 })
    for (let i = 0; i < 30; i++) await queue.add('mail', {}, i % 2 ? {} : { group: { id: `tenant-${i}` } })
    for (let i = 0; i < 30; i++) await queue.setShape({ rate: `${i + 1}/s` }, { by: 'ada', reason: `change ${i}` })
    const context = { viewport: { width: 1440, height: 900 } }
    const { page } = await stage.open({ options: { connection, prefix }, query: `?queue=${queue.name}`, context })
    const history = page.getByRole('region', { name: 'History', exact: true })
    await history.getByRole('row', { name: /change 29/ }).waitFor()
    await page
      .getByRole('row', { name: /tenant-2/ })
      .first()
      .waitFor()
    expect(await page.evaluate('document.documentElement.scrollHeight')).toBeLessThanOrEqual(2700)
    const top = (id: string) => page.locator(`#${id}`).evaluate((element) => element.getBoundingClientRect().top)
    expect(await top('jobs-title')).toBeLessThan(await top('timeline-title'))
    await page.getByRole('button', { name: /^Show each of 31/ }).click()
    await history.getByRole('row', { name: /change 0\b/ }).waitFor()
  })

  test('explains a job that waits, and counts down what is ahead of it', async () => {
    const queue = shop.queue({ rate: '2/s' })
    const jobs = await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'mail', data: {} })))
    shop.worker(queue, async () => {}, { concurrency: 4 })
    const id = jobs.at(-1)?.id ?? ''
    const { page } = await stage.open({ options: { connection, prefix }, query: `?queue=${queue.name}` })
    await page.getByLabel('Explain job').fill(id)
    await page.getByRole('button', { name: 'Explain', exact: true }).click()
    const dialog = page.getByRole('dialog', { name: `Job ${id}` })
    await dialog.getByText('The rate has held it').waitFor()
    expect(new URL(page.url()).searchParams.get('job')).toBe(id)
    const ahead = async () => Number(await dialog.locator('dt:text("Ahead of it") + dd').textContent())
    const before = await ahead()
    await expect.poll(ahead).toBeLessThan(before)
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    await expect.poll(() => new URL(page.url()).searchParams.has('job')).toBe(false)
  })

  test('tells how far behind a replica is that it reads from', async () => {
    const master = await startRedis({ ignoreGiven: true, args: [...FOLLOWED_AT_ONCE] })
    const replica = await startRedis({ ignoreGiven: true, args: ['--replicaof', master.host, String(master.port)] })
    onTestFinished(async () => {
      await replica.stop()
      await master.stop()
    })
    const [write, read] = [master, replica].map(({ url }) => ({
      ...connectionOptions(url),
      maxRetriesPerRequest: null,
    }))
    const queue = shop.keep(new ShapedQueue('mails', { connection: write as object, prefix, shape: { rate: '7/s' } }))
    await queue.add('mail', {})
    const options = { connection: write as object, readConnection: read as object, prefix }
    const { page } = await stage.open({ options })
    await page.getByText(/^replica, .+ behind$/).waitFor()
    await page.getByRole('row', { name: 'mails' }).getByText('7/s', { exact: true }).waitFor()
  })

  test('tells how Redis is: its version and memory, that it is nearly full, and that it refuses writes', async () => {
    const own = await startRedis({ ignoreGiven: true })
    const admin = new Redis(own.url)
    const connection = { ...connectionOptions(own.url), maxRetriesPerRequest: null }
    onTestFinished(async () => {
      admin.disconnect()
      await own.stop()
    })
    const queue = shop.keep(new ShapedQueue('mails', { connection, prefix, shape: { rate: '7/s' } }))
    await queue.getShape()
    const { page } = await stage.open({ options: { connection, prefix } })
    const header = page.getByRole('banner')
    await header.getByText(/^(Redis|Valkey) \d+\.\d+\.\d+, master, memory [\d.]+ MB, no maximum$/).waitFor()
    await admin.rpush(queue.toKey('meta:series:2'), '[]')
    // What Redis uses changes by more than a tenth while connections come and scripts are loaded.
    const isNearlyFull = async () => {
      const used = Number(/^used_memory:(\d+)/m.exec(await admin.info('memory'))?.[1])
      await admin.config('SET', 'maxmemory', String(Math.round(used / 0.95)))
      return header.getByText(/^Memory 9\d%$/).isVisible()
    }
    await expect.poll(isNearlyFull, { interval: 500 }).toBe(true)
    expect(await page.getByText('Redis refuses writes').isVisible()).toBe(false)
    await admin.config('SET', 'maxmemory', '1')
    await page.getByText(/^Redis refuses writes: its memory is full \(\d+% of 1 B\)\. No job can be added\.$/).waitFor()
    await header.getByText('Writes refused', { exact: true }).waitFor()
    await queue.backend.store.run('shed', [])
    await page.getByText(/No job can be added\. Samples were deleted at \d\d:\d\d to free memory\.$/).waitFor()
    await admin.config('SET', 'maxmemory', '0')
    await page.getByText('Redis refuses writes').waitFor({ state: 'hidden' })
    await header.getByText(/^Samples were deleted at \d\d:\d\d to free memory$/).waitFor()
  })

  test('while Redis is away, says why and since when over dimmed numbers, also to who comes meanwhile', async () => {
    const proxy = await startProxy(redis.url)
    onTestFinished(() => proxy.stop())
    const { host, port } = connectionOptions(proxy.url)
    const queue = shop.queueNamed('kept', { rate: '1/h' })
    await queue.getShape()
    const { url } = await stage.serve({ connection: { ...redis.connection, host, port }, prefix })
    const { page } = await stage.look(url)
    await page.getByText('Live', { exact: true }).waitFor()
    await proxy.refuse()
    await page.getByText('Redis cannot be reached. The page goes on by itself.').waitFor()
    await page.getByText(/^The numbers are from \d\d:\d\d:\d\d, \d+ s ago\.$/).waitFor()
    await page.getByText('Redis is away', { exact: true }).waitFor()
    const opacity = () => page.evaluate("Number(getComputedStyle(document.querySelector('main')).opacity)")
    expect(await opacity()).toBeLessThan(1)
    const late = await stage.look(url)
    // The second where the read began before the connection was refused again.
    await late.page.getByText(/^Redis (cannot be reached|does not answer)$/).waitFor()
    await proxy.resume()
    await late.page.getByRole('link', { name: 'kept', exact: true }).waitFor()
    await page.getByText('Live', { exact: true }).waitFor()
    await page.getByText('The page goes on by itself.').waitFor({ state: 'hidden' })
    expect(await opacity()).toBe(1)
  })

  test('says that the connection is lost, and comes back', async () => {
    const queue = shop.queue({ rate: '1/s' })
    await queue.getShape()
    // Not a port of the kernel's choice: while nothing listens there, it could be that of a client.
    const { app, url } = await stage.serve({ connection, prefix }, { port: await findFreePort() })
    const { page } = await stage.look(url)
    await page.getByText('Live', { exact: true }).waitFor()
    await app.close()
    await page.getByText('Reconnecting').waitFor()
    await page.getByText('The connection is lost').waitFor()
    await stage.serve({ connection, prefix }, { port: Number(new URL(url).port) })
    await page.getByText('The connection is back.').waitFor()
    await page.getByText('Live', { exact: true }).waitFor()
  })
})
