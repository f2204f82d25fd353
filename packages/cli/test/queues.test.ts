import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const WAIT = { timeout: 60_000, interval: 20 }
const json = (...args: string[]) => jsonHere(redis, args)
const run = (...args: string[]) => runHere(redis, args)

let queue: ShapedQueue
let count = 0

beforeEach(async () => {
  count += 1
  queue = new ShapedQueue(`emails-${count}`, { connection, prefix, shape: { rate: '5/s', burst: 2, capacity: 10 } })
  await queue.waitUntilReady()
  await queue.add('mail', { to: 'a@example.com' }, { jobId: 'first' })
})

afterEach(() => queue.close())

describe('status', () => {
  test('shows the queue, and all queues', async () => {
    const one = await json('status', queue.name)
    expect(one.queues).toHaveLength(1)
    expect(one.queues[0]).toMatchObject({ name: queue.name, rate: '5/s', cause: 'declared', depth: 1, capacity: 10 })
    await expect
      .poll(async () => (await json('status')).queues.map(({ name }: { name: string }) => name), WAIT)
      .toContain(queue.name)
    const { code, stdout } = await run('status', queue.name)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^rate\s+5\/s \(declared\)$/m)
    expect(stdout).toMatch(/^depth\s+1\/10 /m)
    expect(stdout).not.toContain('\u001b')
  })

  test('says what is out of the ordinary, and the next command, the worst queue first', async () => {
    const shape = { rate: '5/s', capacity: 1 }
    const [changed, full] = ['changed', 'full'].map(
      (name) => new ShapedQueue(`a-${name}`, { connection, prefix, shape }),
    )
    await changed?.setShape({ rate: '2/s' }, { by: 'ada', reason: 'a sale' })
    await full?.add('mail', {})
    const { stdout } = await run('status')
    const lines = stdout.split('\n')
    const states = lines.flatMap((line) => /^(a-\w+)\s+(\S.*?)\s{2,}/.exec(line)?.slice(1, 3).join(': ') ?? [])
    expect(states).toEqual(['a-full: No worker, Full', 'a-changed: Override'])
    const why = lines.slice(lines.lastIndexOf('a-full')).join('\n')
    expect(why).toMatch(/^ {2}No worker: 1 job waits, and no worker has reported\n {4}→ start a ShapedWorker/m)
    expect(why).toMatch(
      /^ {2}Override: rate by ada .* ago, has no end: a sale\n {4}→ sluice shape clear a-changed rate /m,
    )
    const one = await run('status', 'a-full')
    expect(one.stdout).toMatch(
      /^a-full\n {2}No worker: 1 job waits.*\n.*\n {2}Full: new jobs are refused\n {4}→ sluice top /,
    )
    const found = await json('status', 'a-full')
    expect(found.queues[0].conditions).toMatchObject([{ name: 'No worker', level: 'error' }, { name: 'Full' }])
    for (const one of [changed, full]) {
      await one?.obliterate({ force: true })
      await redis.client().srem(`${prefix}:shaped-queues`, one?.name as string)
      await one?.close()
    }
  })

  test('the next start is told as far as it is known', async () => {
    const next = async () => /^next start\s+(.*)$/m.exec((await run('status', queue.name)).stdout)?.[1]
    expect(await next()).toBe('now')
    await queue.pause()
    expect(await next()).toBe('once it is resumed')
    await queue.resume()
    await queue.remove('first')
    await queue.add('mail', {}, { delay: 600_000 })
    expect(await next()).toMatch(/^in (9|10)m/)
    await queue.setShape({ rate: '100/s', concurrency: 1 }, { by: 'test', reason: 'test' })
    await queue.addBulk([1, 2].map((name) => ({ name: `${name}`, data: {} })))
    let end = () => {}
    const ended = new Promise<void>((resolve) => {
      end = resolve
    })
    const worker = new ShapedWorker(queue.name, () => ended, { connection, prefix, concurrency: 2 })
    await expect.poll(next, WAIT).toBe('once a running job has ended')
    end()
    await worker.close()
  })

  test.each([
    ['status', 'nothing'],
    ['top', 'nothing', '--count', '1'],
    ['explain', 'nothing', '1'],
    ['shape', 'show', 'nothing'],
    ['shape', 'history', 'nothing'],
    ['shape', 'set', 'nothing', '--rate', '5/s', '--reason', 'x'],
    ['shape', 'clear', 'nothing', '--reason', 'x'],
    ['pause', 'nothing', '--reason', 'x'],
    ['pause', 'nothing', '--for', '1m', '--reason', 'x'],
    ['resume', 'nothing', '--reason', 'x'],
    ['redrive', 'nothing', '--from', 'dead', '--reason', 'x'],
    ['dead', 'list', 'nothing'],
    ['dead', 'show', 'nothing', '1'],
    ['dead', 'drop', 'nothing', '--all', '--reason', 'x'],
  ])('%s %s: a queue that is not there is 4, and none is made', async (...args) => {
    const { code, stdout, stderr } = await run(...args)
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' })
    expect(stderr).toBe(`sluice: no queue "nothing" under prefix "${prefix}"\n`)
    expect(await redis.client().keys(`${prefix}:nothing:*`)).toEqual([])
  })
})

describe('shape', () => {
  test('a rate that follows the clock is set as JSON, and shown with what is in force until when', async () => {
    const days = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'][(new Date().getUTCDay() + 3) % 7]
    const schedule = JSON.stringify({ schedule: [{ days, rate: '9/s' }, { rate: 0 }], timeZone: 'UTC' })
    await json('shape', 'set', queue.name, '--rate', schedule, '--reason', 'quiet')
    const { rate, cause, shape } = await json('shape', 'show', queue.name)
    expect([rate, cause, shape.rate, shape.schedule]).toEqual(['0/s', 'closed', '9/s', JSON.parse(schedule)])
    const { stdout } = await run('shape', 'show', queue.name)
    expect(stdout).toMatch(/^rate +0\/s now +schedule/m)
    expect(stdout).toMatch(/^schedule +\{"schedule":.* +override of 5\/s +tester/m)
    await json('shape', 'clear', queue.name, 'rate', '--reason', 'over')
    expect(await run('shape', 'set', queue.name, '--rate', '{', '--reason', 'x')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("expected a rate such as '50/s', or a JSON object of schedule and timeZone"),
    })
  })

  test('an override is set, shown with who and why, and cleared; the history tells all of it', async () => {
    const set = await json('shape', 'set', queue.name, '--rate', '7/s', '--for', '1h', '--reason', 'a reason')
    expect(set).toEqual({ queue: queue.name, set: { rate: '7/s' }, forMs: 3_600_000, by: 'tester', reason: 'a reason' })
    const { shape, cause } = await json('shape', 'show', queue.name)
    expect(cause).toBe('override')
    expect(shape).toMatchObject({ rate: '7/s', overrides: { rate: { by: 'tester', reason: 'a reason' } } })
    const lasts = Date.parse(shape.overrides.rate.until) - Date.parse(shape.overrides.rate.setAt)
    expect(lasts).toBeGreaterThan(3_599_000)
    expect((await run('shape', 'show', queue.name)).stdout).toMatch(
      /^rate +7\/s +override of 5\/s +tester .*a reason$/m,
    )
    await json('shape', 'clear', queue.name, 'rate', '--reason', 'over')
    expect((await queue.getShape())?.rate).toBe('5/s')
    const { history } = await json('shape', 'history', queue.name)
    expect(history.map(({ kind, by, reason }: never) => [kind, by, reason])).toMatchObject([
      ['cleared', 'tester', 'over'],
      ['override', 'tester', 'a reason'],
      ['declared', expect.any(String), ''],
    ])
    expect((await run('shape', 'history', queue.name)).stdout).toMatch(/override +tester +rate=7\/s +\S+Z +a reason$/m)
  })

  test('the history shows values as shape show does, not as they are stored', async () => {
    const limits = [{ name: 'day', rate: '100/day' }]
    await json('shape', 'set', queue.name, '--reserved-places', '1=5,10=2', '--reason', 'x')
    await json('shape', 'set', queue.name, '--limits', JSON.stringify(limits), '--reason', 'x')
    await json('shape', 'set', queue.name, '--capacity', 'none', '--reason', 'x')
    await json('shape', 'clear', queue.name, 'capacity', 'limits', '--reason', 'x')
    const { stdout } = await run('shape', 'history', queue.name, '--count', '4')
    const changes = stdout.split('\n').map((line) => /(?:override|cleared) +tester +(.*?) +x$/.exec(line)?.[1])
    expect(changes.filter((change) => change !== undefined)).toEqual([
      expect.stringMatching(/^(capacity limits|limits capacity)$/),
      'capacity=none',
      `limits=${JSON.stringify(limits)}`,
      'reservedPlaces={"1":5,"10":2}',
    ])
  })

  test('none lifts a limit', async () => {
    await json('shape', 'set', queue.name, '--capacity', 'none', '--reason', 'x')
    expect(await queue.getShape()).not.toHaveProperty('capacity', 10)
    expect((await run('shape', 'show', queue.name)).stdout).toMatch(/^capacity +none +override of 10/m)
  })

  test('a reason with control characters stays text', async () => {
    await json('shape', 'set', queue.name, '--rate', '7/s', '--reason', 'a\u001b[31mb')
    const { stdout } = await run('shape', 'show', queue.name)
    expect(stdout).toContain(String.raw`a\u001b[31mb`)
    expect(stdout).not.toContain('\u001b')
  })
})

describe('pause', () => {
  test('with a time it is the meter’s, and resume lifts it', async () => {
    const { pausedUntil } = await json('pause', queue.name, '--for', '10m', '--reason', 'asked for')
    const { at, paused, pauseReason, ...meter } = await queue.meter()
    expect({ paused, pauseReason }).toEqual({ paused: false, pauseReason: 'asked for' })
    expect(meter.pausedUntil?.toISOString()).toBe(pausedUntil)
    expect(Date.parse(pausedUntil) - at.getTime()).toBeGreaterThan(590_000)
    await json('resume', queue.name, '--reason', 'over')
    expect((await queue.meter()).pausedUntil).toBeUndefined()
    const { history } = await json('shape', 'history', queue.name, '--count', '2')
    expect(history.map(({ kind, by, reason }: never) => [kind, by, reason])).toEqual([
      ['resume', 'tester', 'over'],
      ['pause', 'tester', 'asked for'],
    ])
  })

  test('without a time it is BullMQ’s, and resume lifts both', async () => {
    await json('pause', queue.name, '--until', '2999-01-01T00:00:00Z', '--reason', 'x')
    await json('pause', queue.name, '--reason', 'x')
    expect(await queue.isPaused()).toBe(true)
    await json('resume', queue.name, '--reason', 'over')
    const { paused, pausedUntil } = await queue.meter()
    expect({ paused, pausedUntil }).toEqual({ paused: false, pausedUntil: undefined })
  })
})

test('wrong usage that repeats an argument shows its control characters', async () => {
  for (const args of [['status', 'a\nb\u001b[2J'], ['\u001b[2J']]) {
    const { code, stderr } = await runHere(redis, args)
    expect(code).toBe(2)
    expect(stderr).toContain(String.raw`\u001b[2J`)
    expect(stderr).not.toContain('\u001b')
  }
})

test('explain tells of a job, and 4 of one that is not there', async () => {
  await queue.pauseUntil(Date.now() + 600_000, { reason: 'held' })
  const found = await json('explain', queue.name, 'first')
  expect(found).toMatchObject({ id: 'first', name: 'mail', state: 'waiting', ahead: 0, hold: { cause: 'pause' } })
  const parts = Object.values(found.parts as Record<string, number>).reduce((sum, ms) => sum + ms, 0)
  expect(parts).toBeCloseTo(found.waitedMs, 3)
  expect((await run('explain', queue.name, 'first')).stdout).toMatch(/^held by +pause since/m)
  const { code, stderr } = await run('explain', queue.name, 'nobody')
  expect({ code, stderr }).toEqual({ code: 4, stderr: `sluice: no job "nobody" in queue "${queue.name}"\n` })
})

describe('dead letters', () => {
  const failing = async (...ids: string[]) => {
    const dead = `${queue.name}-dead`
    const worker = new ShapedWorker(
      queue.name,
      async ({ id }) => {
        throw new Error(`no such mailbox ${id}`)
      },
      { connection, prefix, deadLetter: dead },
    )
    await queue.addBulk(ids.map((jobId) => ({ name: 'mail', data: { to: 'secret' }, opts: { jobId } })))
    await expect.poll(() => queue.getFailedCount(), WAIT).toBe(ids.length + 1)
    await worker.close()
    return dead
  }

  test('are listed, shown, dropped and redriven', async () => {
    const dead = await failing('second', 'third')
    const why = ['--reason', 'mended']
    const latest = async () => (await json('shape', 'history', queue.name, '--count', '1')).history[0]
    const listed = await json('dead', 'list', dead)
    expect(listed.total).toBe(3)
    expect(listed.letters.map(({ id }: { id: string }) => id)).toEqual(['first', 'second', 'third'])
    expect(JSON.stringify(listed)).not.toContain('secret')
    const [first, second] = listed.letters.map(({ letterId }: { letterId: string }) => letterId)
    const { stdout } = await run('dead', 'show', dead, second)
    expect(stdout).toContain('no such mailbox second')
    expect(stdout).toContain('"to": "secret"')
    const [, short = ''] = /^(\S+…\S+) +\S+ +second /m.exec((await run('dead', 'list', dead)).stdout) ?? []
    expect(short).toHaveLength(20)
    expect((await run('dead', 'show', dead, short)).stdout).toBe(stdout)

    const nobody = await run('dead', 'drop', dead, first, 'nobody', ...why)
    expect(nobody).toMatchObject({ code: 4, stderr: `sluice: no dead letter "nobody" in queue "${dead}"\n` })
    expect((await json('dead', 'list', dead)).total).toBe(3)
    expect(await json('dead', 'drop', dead, '--failed-reason', 'second', ...why)).toEqual({
      queue: dead,
      dropped: [second],
    })
    expect(await latest()).toMatchObject({
      ...{ kind: 'job', by: 'tester', reason: 'mended' },
      change: { 'dead letter dropped': 'second', in: dead, failedReason: 'second' },
    })

    const back = await json('redrive', queue.name, '--from', dead, '--failed-reason', 'third', ...why)
    expect(back).toEqual({ queue: queue.name, from: dead, redriven: 1, back: 0, taken: 0, skipped: 1 })
    expect((await queue.getWaiting()).map(({ id }) => id)).toEqual(['third'])
    expect(await latest()).toMatchObject({
      ...{ kind: 'redrive', by: 'tester', reason: 'mended' },
      change: { redriven: 1 },
    })
    expect((await json('dead', 'drop', dead, '--all', ...why)).dropped).toEqual([first])
    expect((await json('dead', 'list', dead)).letters).toEqual([])
  })

  test('of a queue of other jobs nothing is dropped', async () => {
    expect((await run('dead', 'drop', queue.name, 'first', '--reason', 'x')).code).toBe(4)
    expect((await json('dead', 'drop', queue.name, '--all', '--reason', 'x')).dropped).toEqual([])
    expect(await queue.getWaitingCount()).toBe(1)
  })
})
