import { createHash } from 'node:crypto'
import { Command, Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { LIMIT_SCRIPTS, limitScript, ScriptSet } from '../../src/redis/scripts.ts'
import { VERSION } from '../../src/version.ts'
import { useRedis } from '../support/redis.ts'
import { Fleet } from './support/fleet.ts'

const redis = useRedis(import.meta.url)
const admin = redis.client()
const reader = redis.client({ ...redis.connection, enableAutoPipelining: true })

/** BullMQ counts an id that it does not use, and says that the job is a duplicate. */
const ADDED = ['id', 'events']
/** Refusals are counted each time: a record of each would cost those most who are refused most. */
const REFUSED = ['meta:meter.refused', 'meta:meter.refusedTotal']

/** A change that is made again. Nothing changes if it comes as one that is sent again. */
const AGAIN = 'meta:history:again'

/**
 * What a script changes if it runs again at once: keys, or `key.field`, without the prefix of the queue. Most are times:
 * when a claim, an override, a block, a lease or a pause ends, which begins again.
 */
const CHANGES: Readonly<Record<string, readonly string[]>> = {
  addStandardJob: [...ADDED, ...REFUSED],
  addPrioritizedJob: ADDED,
  addDelayedJob: ADDED,
  'addStandardJob-fitting': ADDED,
  'addPrioritizedJob-fitting': ADDED,
  'admit-bulk': [...ADDED, 'meta:shape.claimedUntil', 'meta:claims.<claim>'],
  'admit-bulk-fitting': ADDED,
  'admit-bulk-groups': ADDED,
  'admit-flow': ADDED,
  'claim-places': ['meta:shape.claimedUntil', 'meta:claims.<claim>'],
  'override-shape': [
    'meta:shape.overrides',
    'meta:shape.declared',
    'meta:shape.rev',
    'meta:shape.fits',
    'meta:shape.open',
    AGAIN,
  ],
  'pause-meter': [AGAIN, 'meta:shape.rev', 'meta:shape.fits', 'meta:shape.open'],
  'note-history': [AGAIN],
  'set-group': [AGAIN, 'meta:groups:settings.a'],
  decide: ['{p}:n:joe'],
  'extend-lease': ['{p}:n:joe'],
  'block-key': ['{l}:blocks', '{l}:switch'],
  'set-limit-mode': ['{l}.modeAt'],
  'reset-key': ['{l}.resetAt'],
}
/** They take the next part of a job list, once for each call; what is added meanwhile stays. */
const IN_PARTS = ['drain-part']
/** How long the head has been held, when others were looked for, and samples, of which the next may be due: up to now. */
const UNTIL_NOW = /^meta:(meter\.(held|holds|foreignAt)|series:|starts\.max:)/

/** The names of all scripts, by their texts and digests. */
function scriptNames(): Map<string, string> {
  const scripts = new ScriptSet(captureBullmqScripts(), VERSION)
  const texts: [string, string][] = [
    ...[...scripts.definitions()].map(([name, { lua }]) => [name, lua] as [string, string]),
    ...LIMIT_SCRIPTS.map((name) => [name, limitScript(name)] as [string, string]),
    ['admit-flow', scripts.admitFlowText()],
  ]
  const digest = (text: string) => createHash('sha1').update(text).digest('hex')
  return new Map(texts.flatMap(([name, lua]) => [[lua, name] as const, [digest(lua), name] as const]))
}

/** All that Redis holds under the prefix: the value of each key, and of each field. */
async function contents(): Promise<Map<string, string>> {
  const keys = await reader.keys(`${redis.prefix}*`)
  const found = new Map<string, string>()
  const read = async (key: string) => {
    const [name, fields] = [key.slice(redis.prefix.length), await reader.hgetall(key).catch(() => undefined)]
    if (!fields) found.set(name, String((await reader.dumpBuffer(key))?.toString('latin1')))
    for (const [field, value] of Object.entries(fields ?? {})) found.set(`${name}.${field}`, value)
  }
  await Promise.all(keys.map(read))
  return found
}

function difference(before: Map<string, string>, after: Map<string, string>): string[] {
  const names = new Set([...before.keys(), ...after.keys()])
  const changed = [...names].filter((name) => before.get(name) !== after.get(name))
  return changed.map((name) =>
    name.replace(/^:(limit:|[\w-]+:)/, '').replace(/^meta:claims\..*/, 'meta:claims.<claim>'),
  )
}

/**
 * From now on each script runs a second time with the same arguments, right after the first; the caller gets the second
 * reply. @returns for each script that ran, what the second run changed
 */
async function sendTwice(): Promise<Map<string, Set<string>>> {
  const names = scriptNames()
  for (const text of names.keys()) if (text.length > 40) await admin.script('LOAD', text)
  const changed = new Map<string, Set<string>>()
  const { sendCommand } = Redis.prototype
  let line: Promise<unknown> = Promise.resolve()
  Redis.prototype.sendCommand = function (command, stream) {
    const name = /^eval/.test(command.name) && !stream ? names.get(String(command.args[0])) : undefined
    if (name === undefined) return sendCommand.call(this, command, stream)
    const run = () =>
      sendCommand.call(
        this,
        new Command(command.name, command.args as string[], { replyEncoding: 'utf8' }),
      ) as Promise<unknown>
    line = line.then(async () => {
      try {
        await run()
        const before = await contents()
        const reply = await run()
        const changes = difference(before, await contents())
        changed.set(name, new Set([...(changed.get(name) ?? []), ...changes]))
        command.resolve(reply)
      } catch (error) {
        command.reject(error as Error)
      }
    })
    return command.promise
  }
  onTestFinished(() => {
    Redis.prototype.sendCommand = sendCommand
  })
  return changed
}

const CHANGE = { by: 'test', reason: 'test' }
const jobs = (count: number, opts: object = {}) =>
  Array.from({ length: count }, () => ({ name: 'job', data: {}, opts }))

/** Uses what there is. */
async function useEverything(fleet: Fleet): Promise<void> {
  const { prefix, connection } = redis
  const queue = fleet.queue('q', {
    connection,
    prefix,
    shape: { rate: '1000/s', burst: 5, capacity: 900, groups: {}, maxLatenessMs: 600_000 },
  })
  const open = fleet.queue('open', { connection, prefix, shape: { capacity: 5, maxWaitMs: 60_000 } })
  const fitting = fleet.queue('fitting', { connection, prefix, shape: { capacity: 900 } })
  const flows = new ShapedFlowProducer({ connection, prefix })
  onTestFinished(() => flows.close())
  await queue.add('job', {})
  await queue.add('job', {}, { mustStartBefore: Date.now() + 600_000 })
  await queue.add('job', {}, { priority: 2 })
  await queue.add('job', {}, { delay: 1 })
  await queue.addBulk(jobs(3))
  await queue.addBulk(jobs(3, { group: { id: 'a' } }))
  await queue.addBulk([...jobs(1, { delay: 1 }), ...jobs(2)])
  await queue.addOnce(jobs(2), { key: 'k', fingerprint: 'f' })
  await flows.add({ name: 'parent', queueName: 'q', children: [{ name: 'child', queueName: 'q' }] })
  await queue.setShape({ rate: '900/s' }, CHANGE)
  await queue.pauseUntil(Date.now() + 100, CHANGE)
  await queue.pause(CHANGE)
  await queue.resume(CHANGE)
  await queue.setGroup('a', { rate: '900/s' }, CHANGE)
  await queue.clearShape(CHANGE)
  await queue.getShape()
  await queue.add('bad', {}, { jobId: 'bad' })
  const worker = fleet.worker('q', { connection, prefix, concurrency: 5, deadLetter: 'dead' }, async (job) => {
    if (job.id === 'bad') throw new Error('bad')
  })
  await fleet.until(() => fleet.completed.length === 15 && fleet.failed.length === 1)
  await worker.close()
  expect((await queue.redrive({ from: 'dead' })).back).toBe(1)
  // In parts, and so is the drain.
  await queue.addBulk(Array.from({ length: 101 }, (_, n) => ({ name: 'job', data: {}, opts: { jobId: `given${n}` } })))
  await queue.drain(true)
  for (const opts of [{}, {}, { priority: 2 }]) await fitting.add('job', {}, opts)
  await fitting.addBulk(jobs(3))
  for (let i = 0; i < 7; i++) await open.add('job', {}).catch(() => {})
  const limit = createLimiter(admin, { name: 'l', prefix, rate: '20/s', burst: 2, timeoutMs: 10_000 })
  await limit.take('joe')
  await limit.penalty('joe', 1)
  await limit.wait('joe')
  await limit.block('eve', 60_000)
  await limit.setMode('shadow')
  await limit.reset('joe')
  const places = createLimiter(admin, {
    name: 'p',
    prefix,
    algorithm: 'concurrency',
    concurrency: 2,
    timeoutMs: 10_000,
  })
  const { lease } = await places.take('joe')
  await lease?.extend()
  await lease?.release()
}

test('each script that is sent again at once changes nothing, but for what is listed', async () => {
  const fleet = new Fleet()
  const changed = await sendTwice()
  await useEverything(fleet)
  expect(new Set(fleet.completed).size).toBe(fleet.completed.length)
  expect([...changed.keys()]).toEqual(expect.arrayContaining(Object.keys(CHANGES)))
  const unexpected = [...changed]
    .filter(([name]) => !IN_PARTS.includes(name))
    .flatMap(([name, found]) =>
      [...found]
        .filter((what) => !(CHANGES[name]?.includes(what) || UNTIL_NOW.test(what)))
        .map((what) => `${name}: ${what}`),
    )
  expect(unexpected).toEqual([])
})
