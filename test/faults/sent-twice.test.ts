import { createHash } from 'node:crypto'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { installedScripts } from '../../src/redis/scripts.ts'
import { useRedis } from '../support/redis.ts'
import { Fleet } from './support/fleet.ts'

const redis = useRedis(import.meta.url)
const admin = redis.client()

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
  add: [...ADDED, ...REFUSED],
  'add-bulk': [...ADDED, 'meta:shape.claimedUntil', 'meta:claims.<claim>'],
  'add-flow': ADDED,
  'claim-places': ['meta:shape.claimedUntil', 'meta:claims.<claim>'],
  'override-shape': ['meta:shape.overrides', 'meta:shape.declared', 'meta:shape.rev', 'meta:shape.digest', AGAIN],
  'pause-meter': [AGAIN, 'meta:shape.rev', 'meta:shape.digest'],
  'note-history': [AGAIN],
  'set-group': [AGAIN, 'meta:groups:settings.a'],
  'set-limit': [AGAIN, 'meta:limits:own:rpm.a', 'meta:shape.rev', 'meta:shape.digest'],
  decide: ['{p}:n:joe'],
  'extend-lease': ['{p}:n:joe'],
  'block-key': ['{l}:blocks', '{l}:switch'],
  'set-limit-mode': ['{l}.modeAt'],
  'reset-key': ['{l}.resetAt'],
}
/** They take the next part of a job list, once for each call; what is added meanwhile stays. */
const IN_PARTS = ['drain-part']
/** Where the scripts read the time: both runs of one do at the same time what they do. */
const CLOCK = `${redis.prefix}:clock`
const SET_CLOCK = `redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], unpack(redis.call('TIME')))`

/**
 * All that Redis holds under a prefix: the value of each key, and of each field, as {key, key or `key.field`, value}.
 * Then when each key ends, ms, and the time, ms.
 */
const LOOK = `
local found, ends = {}, {}
local function add(key, what, value)
  found[#found + 1] = { string.sub(key, #ARGV[1] + 1), string.sub(what, #ARGV[1] + 1), value }
end
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  ends[#ends + 1] = { string.sub(key, #ARGV[1] + 1), redis.call('PEXPIRETIME', key) }
  if redis.call('TYPE', key).ok == 'hash' then
    local fields = redis.call('HGETALL', key)
    for i = 1, #fields, 2 do add(key, key .. '.' .. fields[i], fields[i + 1]) end
  else
    add(key, key, redis.sha1hex(redis.call('DUMP', key)))
  end
end
local time = redis.call('TIME')
return { found, ends, time[1] * 1000 + math.ceil(time[2] / 1000) }`

type Look = [found: [key: string, what: string, value: string][], ends: [key: string, atMs: number][], atMs: number]

interface Script {
  readonly name: string
  /** With the time that is kept. */
  readonly text: string
}

/** All scripts, by their functions, texts and digests. */
function knownScripts(): Map<string, Script> {
  const scripts = installedScripts()
  const digest = (text: string) => createHash('sha1').update(text).digest('hex')
  const known = (name: string, lua: string, sent: readonly string[]) => {
    const script = { name, text: lua.replace(/\w+\.call\('TIME'\)/g, `redis.call('LRANGE', '${CLOCK}', 0, 1)`) }
    return sent.flatMap((text) => [[text, script] as const, [digest(text), script] as const])
  }
  return new Map([
    ...[...scripts.texts()].flatMap(([name, lua]) =>
      known(name, lua, [scripts.functionOf(name), scripts.textSent(name)]),
    ),
  ])
}

function difference(before: Look, after: Look): string[] {
  // Whose time to live was over in between went without the script.
  const gone = new Set(before[1].flatMap(([key, atMs]) => (atMs >= 0 && atMs <= after[2] ? [key] : [])))
  const [had, has] = [before, after].map(
    ([found]) => new Map(found.flatMap(([key, what, value]) => (gone.has(key) ? [] : [[what, value] as const]))),
  ) as [Map<string, string>, Map<string, string>]
  const changed = [...new Set([...had.keys(), ...has.keys()])].filter((what) => had.get(what) !== has.get(what))
  return changed.map((what) =>
    what.replace(/^:(limit:|[\w-]+:)/, '').replace(/^meta:claims\..*/, 'meta:claims.<claim>'),
  )
}

/**
 * From now on each script runs a second time with the same arguments, right after the first; the caller gets the second
 * reply. Both runs are in one transaction: what others do, and what time does, is no change of the script.
 * @returns for each script that ran, what the second run changed
 */
function sendTwice(): Map<string, Set<string>> {
  const scripts = knownScripts()
  const changed = new Map<string, Set<string>>()
  const { sendCommand } = Redis.prototype
  const runTwice = async ({ name, text }: Script, args: readonly string[]): Promise<unknown> => {
    const replies = await admin
      .multi()
      .eval(SET_CLOCK, 1, CLOCK)
      .eval(text, ...(args as [number | string, ...string[]]))
      .eval(LOOK, 0, redis.prefix)
      .eval(text, ...(args as [number | string, ...string[]]))
      .eval(LOOK, 0, redis.prefix)
      .exec()
    const [, , before, reply, after] = (replies ?? []).map(([error, value]) => {
      if (error) throw error
      return value
    })
    const changes = difference(before as Look, after as Look)
    changed.set(name, new Set([...(changed.get(name) ?? []), ...changes]))
    return reply
  }
  Redis.prototype.sendCommand = function (command, stream) {
    const script = /^(eval|fcall)/.test(command.name) && !stream ? scripts.get(String(command.args[0])) : undefined
    if (!script) return sendCommand.call(this, command, stream)
    runTwice(script, command.args.slice(1) as string[]).then(command.resolve, command.reject)
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
  const limits = [{ name: 'rpm', by: 'model', rate: '1/s' }]
  const keyed = fleet.queue('keyed', { connection, prefix, shape: { limits } })
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
  await keyed.setLimit('rpm', 'a', { rate: '900/s' }, CHANGE)
  await queue.clearShape(CHANGE)
  await queue.getShape()
  await queue.add('bad', {}, { jobId: 'bad' })
  const worker = fleet.worker('q', { connection, prefix, concurrency: 5, deadLetter: 'dead' }, async (job) => {
    if (job.id === 'bad') throw new Error('bad')
  })
  await fleet.until(() => fleet.completed.length === 17 && fleet.failed.length === 1)
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
  const changed = sendTwice()
  await useEverything(fleet)
  expect(new Set(fleet.completed).size).toBe(fleet.completed.length)
  expect([...changed.keys()]).toEqual(expect.arrayContaining(Object.keys(CHANGES)))
  const unexpected = [...changed]
    .filter(([name]) => !IN_PARTS.includes(name))
    .flatMap(([name, found]) =>
      [...found].filter((what) => !CHANGES[name]?.includes(what)).map((what) => `${name}: ${what}`),
    )
  expect(unexpected).toEqual([])
})
