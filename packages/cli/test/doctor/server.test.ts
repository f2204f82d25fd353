import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Findings } from '../../src/doctor/check.ts'
import { bullmqFinding, nodeFinding, redisFinding } from '../../src/doctor/checks/versions.ts'
import { levelsOf, server, troubles, Ward } from './support.ts'

const ward = new Ward()
const findings = new Findings('versions')

test('nothing is wrong with a server as it should be', async () => {
  const found = await ward.examineWith(await ward.userLike('operator', '+config|get'))
  expect(found.filter(({ level }) => level !== 'ok')).toEqual([])
  const checks = [
    'versions',
    'eviction',
    'persistence',
    'replication',
    'clock',
    'access',
    'rights',
    'canary',
    'functions',
    'orphans',
  ]
  expect([...new Set(found.map(({ check }) => check))]).toEqual(checks)
  expect(found.every(({ level, remedy }) => level !== 'ok' || remedy === '')).toBe(true)
})

test.each([
  [{ 'maxmemory-policy': 'allkeys-lru' }, 'eviction', ['error'], 'allkeys-lru'],
  [{ appendonly: 'no' }, 'persistence', ['error'], 'nothing is persisted'],
  [{ appendonly: 'no', save: '900 1' }, 'persistence', ['warning'], '900 1'],
  [{ appendfsync: 'no' }, 'persistence', ['warning'], 'power cut'],
  [{ appendfsync: 'always' }, 'persistence', ['ok'], 'before each answer'],
] as const)('%j: %s %j', async (settings, check, levels, text) => {
  await ward.configure(settings)
  const client = await ward.userLike('operator', '+config|get')
  const found = (await ward.examineWith(client)).filter((finding) => finding.check === check)
  expect(found.map(({ level }) => level)).toEqual(levels)
  expect(found[0]?.message).toContain(text)
  expect(found[0]?.remedy === '').toBe(levels[0] === 'ok')
})

test.each([
  [1.02, 'warning', /^9\d% of maxmemory is used/],
  [0.9, 'error', /^1\d\d% of maxmemory is used: writes are refused/],
] as const)('memory of %s times what is used', async (times, level, message) => {
  const [, used] = /used_memory:(\d+)/.exec(await ward.admin.info('memory')) ?? []
  await ward.configure({ maxmemory: String(Math.round(Number(used) * times)) })
  const found = (await ward.examine({ role: 'limiter' })).filter(({ check }) => check === 'eviction')
  expect(found).toMatchObject([{ level, message: expect.stringMatching(message) }])
})

test('who may not read settings is told what can be known without', async () => {
  const found = async () => (await ward.examine()).filter(({ check }) => check === 'persistence')
  expect(await found()).toMatchObject([
    { level: 'ok', message: 'every write goes to the append-only file' },
    { level: 'skipped', remedy: expect.stringContaining('+config|get') },
  ])
  await ward.configure({ appendonly: 'no' })
  expect((await found()).map(({ level }) => level)).toEqual(['warning', 'skipped'])
})

test('a snapshot that failed is told of', async () => {
  const { service, client } = await server({ args: ['--enable-protected-configs', 'yes', '--save', '900 1'] })
  expect(service.pid).toBeDefined()
  const [, dir = ''] = (await client.config('GET', 'dir')) as string[]
  // Nothing can be moved to where a folder with something in it is.
  await mkdir(join(dir, 'taken', 'inside'), { recursive: true })
  await client.config('SET', 'dbfilename', 'taken')
  await client.bgsave()
  await expect.poll(() => client.info('persistence')).toContain('rdb_last_bgsave_status:err')
  const found = await ward.examineWith(client)
  expect(levelsOf(found, 'persistence')).toEqual(['error', 'warning'])
})

test('replicas: their master, themselves, and when the master is gone', async () => {
  const master = await server({ args: ['--repl-diskless-sync-delay', '0'] })
  const replica = await server({ args: ['--replicaof', '127.0.0.1', String(master.service.port)] })
  await expect.poll(() => master.client.info('replication')).toContain('state=online')

  const exposed = (await ward.examineWith(master.client)).filter(({ check }) => check === 'replication')
  expect(exposed).toMatchObject([
    { level: 'warning', remedy: expect.stringContaining('min-replicas-to-write 1 min-replicas-max-lag 1') },
  ])
  await master.client.config('SET', 'min-replicas-to-write', '1')
  expect(levelsOf(await ward.examineWith(master.client), 'replication')).toEqual(['ok'])

  const onReplica = await ward.examineWith(replica.client)
  expect(onReplica.find(({ check }) => check === 'replication')).toMatchObject({
    level: 'error',
    message: expect.stringContaining('refuses jobs'),
    remedy: expect.stringContaining(`127.0.0.1:${master.service.port}`),
  })
  expect(onReplica.filter(({ check }) => check === 'canary')).toMatchObject([
    { level: 'error', remedy: 'mend first what is found of this Redis' },
  ])
  await master.service.kill()
  await expect.poll(() => replica.client.info('replication')).toContain('master_link_status:down')
  const alone = (await ward.examineWith(replica.client)).find(({ check }) => check === 'replication')
  expect(alone).toMatchObject({ level: 'error', message: expect.stringContaining('its link') })
})

test.each([
  [0, 'ok'],
  [361, 'warning'],
  [5_000, 'warning'],
  [-5_000, 'warning'],
  [3_600_000, 'error'],
] as const)('a clock that is %i ms ahead: %s', async (aheadMs, level) => {
  const found = await ward.examine({ nowMs: () => Date.now() + aheadMs })
  const clock = found.find(({ check }) => check === 'clock')
  expect(clock).toMatchObject({ level })
  if (aheadMs !== 0) expect(clock?.message).toContain(aheadMs > 0 ? 'ahead of' : 'behind')
})

test('who may do everything is warned', async () => {
  const found = await ward.examineWith(ward.admin)
  expect(troubles(found)).toMatchObject([
    { check: 'access', level: 'warning', remedy: expect.stringContaining('docs/acl') },
  ])
})

test.each([
  ['20.19.0', 'ok'],
  ['22.1.0', 'ok'],
  ['20.18.3', 'error'],
  ['18.20.0', 'error'],
])('Node %s: %s', (version, level) => {
  expect(nodeFinding(findings, version).level).toBe(level)
})

test.each([
  [{ redis_version: '7.0.15' }, 'ok', 'Redis 7.0.15'],
  [{ redis_version: '7.2.4', valkey_version: '8.0.1' }, 'ok', 'Valkey 8.0.1'],
  [{ redis_version: '6.2.14' }, 'error', 'Redis 6.2.14'],
  [{}, 'error', 'no Redis'],
])('%j: %s', (info, level, text) => {
  const found = redisFinding(findings, new Map(Object.entries(info)))
  expect(found.level).toBe(level)
  expect(found.message).toContain(text)
})

test('another BullMQ is told of: one whose scripts are unknown, and one that can not work', async () => {
  const { captureBullmqScripts } = await import('../../../../src/redis/bullmq-scripts.ts')
  const { version, scripts } = captureBullmqScripts()
  const moveToActive = scripts.get('moveToActive')
  if (!moveToActive) throw new Error('BullMQ has no moveToActive')
  const withActive = (changed: typeof moveToActive) => ({
    version,
    scripts: new Map([...scripts, ['moveToActive', changed]]),
  })
  expect(bullmqFinding(findings).level).toBe('ok')
  const unknown = withActive({ ...moveToActive, lua: `${moveToActive.lua}\n-- changed` })
  expect(bullmqFinding(findings, unknown).level).toBe('warning')
  expect(bullmqFinding(findings, withActive({ ...moveToActive, numberOfKeys: 12 })).level).toBe('error')
})
