import { readFileSync } from 'node:fs'
import { type RedisConnection, RedisQueueBackend } from 'bullmq'
import { expect, test } from 'vitest'
import { UnsupportedVersionError } from '../../src/index.ts'
import {
  type BullmqScript,
  type BullmqScripts,
  CLOCKED,
  COMPOSED,
  captureBullmqScripts,
  checkBullmqScripts,
  keysOf,
} from '../../src/redis/bullmq-scripts.ts'
import { TESTED_BULLMQ } from '../../src/redis/tested-bullmq.ts'
import { argumentsOf } from '../model/bullmq-arguments.ts'

const installed = captureBullmqScripts()
const tested = Object.keys(TESTED_BULLMQ)

/** The installed scripts as another version might have them. */
function fabricated(change: (scripts: Map<string, BullmqScript>) => void, version = '6.99.0'): BullmqScripts {
  const scripts = new Map(installed.scripts)
  change(scripts)
  return { version, scripts }
}

function edited(name: string, edit: (script: BullmqScript) => Partial<BullmqScript>): BullmqScripts {
  return fabricated((scripts) => {
    const script = scripts.get(name) as BullmqScript
    scripts.set(name, { ...script, ...edit(script) })
  })
}

function refused(scripts: BullmqScripts): UnsupportedVersionError {
  try {
    checkBullmqScripts(scripts)
  } catch (error) {
    expect(error).toBeInstanceOf(UnsupportedVersionError)
    return error as UnsupportedVersionError
  }
  return expect.fail('expected these scripts to be refused')
}

test('the installed copy is read without a connection: version and scripts', () => {
  const manifest = new URL('../../node_modules/bullmq/package.json', import.meta.url)
  expect(installed.version).toBe(JSON.parse(readFileSync(manifest, 'utf8')).version)
  for (const [name, keys] of Object.entries(COMPOSED)) expect(installed.scripts.get(name)?.numberOfKeys).toBe(keys)
})

test('known texts pass in silence', () => {
  expect(checkBullmqScripts(installed)).toBeUndefined()
  expect(tested).toContain(installed.version)
})

test('a script that is not composed may change', () => {
  expect(checkBullmqScripts(edited('pause', ({ lua }) => ({ lua: `${lua}\n-- another` })))).toBeUndefined()
})

test.each(Object.keys(COMPOSED))('an unknown text of %s with the known layout gives a warning', (name) => {
  const warning = checkBullmqScripts(edited(name, ({ lua }) => ({ lua: `${lua}\n-- another` })))
  expect(warning).toContain('bullmq 6.99.0')
  for (const version of tested) expect(warning).toContain(version)
  expect(warning).toContain('not tested')
})

test.each(Object.keys(COMPOSED))('%s with another number of keys is refused', (name) => {
  const error = refused(edited(name, ({ numberOfKeys }) => ({ numberOfKeys: numberOfKeys + 1 })))
  const keys = COMPOSED[name] as number
  expect(error.message).toContain(`${name} has ${keys + 1} keys, expected ${keys}`)
})

test.each(Object.keys(COMPOSED))('a BullMQ without %s is refused', (name) => {
  expect(refused(fabricated((scripts) => scripts.delete(name))).message).toContain(`${name} is missing`)
})

test('another way to start a job in a script that is composed is refused', () => {
  const other = edited('moveToActive', ({ lua }) => ({ lua: lua.replaceAll('"RPOPLPUSH"', '"LMOVE"') }))
  expect(refused(other).message).toContain('moveToActive does not contain')
})

test.each([...Object.keys(CLOCKED), 'moveToActive', 'moveToFinished'])(
  '%s that reads the time of delays otherwise is refused',
  (name) => {
    const other = edited(name, ({ lua }) => ({
      lua: lua.replaceAll('timestamp', 'at').replaceAll('ARGV[5]', 'ARGV[05]'),
    }))
    expect(refused(other).message).toContain(`${name} does not contain`)
  },
)

test('a further script that delays jobs is refused', () => {
  const { lua, numberOfKeys } = installed.scripts.get('changeDelay') as BullmqScript
  const error = refused(fabricated((scripts) => scripts.set('delayManyJobs', { lua, numberOfKeys })))
  expect(error.message).toContain('delayManyJobs also contains')
})

test('a further script that starts jobs is refused', () => {
  const lua = 'return redis.call("RPOPLPUSH", KEYS[1], KEYS[2])'
  const error = refused(fabricated((scripts) => scripts.set('startManyJobs', { lua, numberOfKeys: 2 })))
  expect(error.message).toContain('startManyJobs can start jobs too')
})

test('the refusal names both versions and what to do', () => {
  const error = refused(edited('addStandardJob', () => ({ numberOfKeys: 12 })))
  expect(error).toMatchObject({ name: 'UnsupportedVersionError', bullmqVersion: '6.99.0', testedVersions: tested })
  expect(error.message).toContain('bullmq 6.99.0 is not supported')
  expect(error.message).toContain(tested.join(', '))
  expect(error.message).toContain('Install a tested version of bullmq, or a newer sluice')
})

test.each([
  ['addStandardJob', 'wait paused meta id completed delayed active events marker'],
  ['addPrioritizedJob', 'marker meta id prioritized delayed completed active events pc'],
  ['addDelayedJob', 'marker meta id delayed completed events'],
  ['addParentJob', 'meta id delayed waiting-children completed events'],
])('the keys of %s are read from the code of BullMQ', (script, keys) => {
  expect(keysOf(script)).toEqual(keys.split(' ').map((name) => `'${name}'`))
})

test('those of addJobScheduler are the ones that the code of BullMQ sends', async () => {
  const keys = new Proxy({}, { get: (_target, name) => String(name) }) as never
  const connection = { client: Promise.resolve({}) } as unknown as RedisConnection
  const backend = new RedisQueueBackend(connection, '', keys, String, { connection: {} }, undefined, false)
  const args = await argumentsOf<RedisQueueBackend>(backend, function addJobScheduler() {
    return this.addJobScheduler('s', 0, '', {}, { name: '' } as never, {})
  })
  expect(keysOf('addJobScheduler')).toEqual(args.slice(0, 11).map((name) => `'${name}'`))
})

test('so are those of moveToActive', async () => {
  const keys = new Proxy({}, { get: (_target, name) => String(name) }) as never
  const connection = { client: Promise.resolve({}) } as unknown as RedisConnection
  const backend = new RedisQueueBackend(connection, '', keys, String, { connection: {} }, undefined, false)
  const args = await argumentsOf<RedisQueueBackend>(backend, function moveToActive() {
    return this.moveToActive('token')
  })
  expect(keysOf('moveToActive')).toEqual(args.slice(0, 11).map((name) => `'${name}'`))
})

test.each(['addStandardJob', 'addPrioritizedJob', 'addDelayedJob', 'addParentJob'])(
  'a version whose %s takes the id of a job from elsewhere is refused',
  (name) => {
    const error = refused(edited(name, ({ lua }) => ({ lua: lua.replaceAll('args[2]', 'args[3]') })))
    expect(error.message).toContain(`${name} does not contain`)
  },
)

test('so are those of the ends of jobs, which depend on the job', () => {
  const named = ['wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc']
  const expected = [...named.map((name) => `'${name}'`), 'target', 'id', "'metrics:' .. target", "'marker'"]
  expect(keysOf('moveToFinished')).toEqual(expected)
  const ofDelayed = ['events', 'meta', 'stalled', 'wait', 'limiter', 'pc'].map((name) => `'${name}'`)
  const before = ['marker', 'active', 'prioritized', 'delayed'].map((name) => `'${name}'`)
  expect(keysOf('moveToDelayed')).toEqual([...before, 'id', ...ofDelayed])
  expect(keysOf('retryJob')).toBeUndefined()
})
