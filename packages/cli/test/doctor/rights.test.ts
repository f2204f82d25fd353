import { afterEach, expect, test } from 'vitest'
import { commandsOfRole } from '../../../../src/redis/rights.ts'
import { rights } from '../../src/doctor/checks/rights.ts'
import { levelsOf, Ward } from './support.ts'

const ward = new Ward()

afterEach(async () => expect(await ward.leftKeys()).toEqual([]))

test.each(['producer', 'worker', 'gateway', 'operator', 'limiter'] as const)('a %s has its rights', async (role) => {
  const found = await ward.examine({ user: role, role })
  expect(levelsOf(found, 'rights')).toEqual(['ok'])
  expect(levelsOf(found, 'canary')).toEqual([role === 'limiter' ? 'skipped' : 'ok'])
})

test.each([
  ['producer', 'worker', '+bzpopmin'],
  ['worker', 'operator', '+scan'],
  ['limiter', 'worker', '+xadd'],
] as const)('a %s is no %s', async (user, role, lacks) => {
  const found = await ward.examine({ user, role })
  const rights = found.find(({ check }) => check === 'rights')
  expect(rights).toMatchObject({ level: 'error', remedy: expect.stringContaining(`docs/acl/${role}.acl`) })
  expect(rights?.message.split(' ')).toContain(lacks)
})

const HALVES = (['producer', 'worker', 'gateway', 'operator', 'limiter'] as const).flatMap((role) =>
  [0, 1].map((half) => [role, half] as const),
)

// Each half in turn: what is named is exactly what is missing.
test.each(HALVES)('each command that a %s lacks is named (half %i)', async (role, half) => {
  const client = await ward.userLike(role)
  // Without these the check itself cannot run.
  const commands = commandsOfRole(role).filter((one) => !['eval', 'info', 'select'].includes(one))
  const lacking = commands.filter((_, i) => i % 2 === half)
  await ward.admin.call('ACL', 'SETUSER', client.options.username as string, ...lacking.map((one) => `-${one}`))
  const examined = { client, prefix: ward.prefix, limitsPrefix: ward.redis.limits, role }
  const [found] = await rights(examined as never)
  expect(found?.message).toMatch(new RegExp(`^the user lacks rights of an? ${role}: `))
  expect(found?.message.split(': ')[1]?.split(' ')).toEqual(lacking.map((one) => `+${one}`))
})

test.each([
  ['without a command that ends jobs', ['-xtrim'], 'start and finish'],
  ['without another', ['-scard'], 'start and finish'],
  ['without one that adds', ['-lpush'], 'be added'],
  ['without the channel', ['resetchannels'], 'be added'],
  ['of another prefix', ['resetkeys', '~other:*'], 'be added'],
])('the canary dies of a user %s', async (_what, rules, step) => {
  const found = await ward.examineWith(await ward.userLike('worker', ...rules))
  const canary = found.filter(({ check }) => check === 'canary')
  expect(canary[0]).toMatchObject({ level: 'error', message: expect.stringContaining(step) })
  expect(levelsOf(found, 'rights')).toEqual(['error'])
})

test('an observer is not asked for one right after the other, and adds nothing', async () => {
  const found = await ward.examine({ user: 'observer', role: 'observer' })
  expect(levelsOf(found, 'rights')).toEqual(['skipped'])
  expect(levelsOf(found, 'canary')).toEqual(['skipped'])
  expect(levelsOf(found, 'orphans')).toEqual(['skipped'])
})

test('what a worker may not look at is skipped, and says what it needs', async () => {
  const found = await ward.examine({ user: 'worker' })
  const skipped = found.filter(({ level }) => level === 'skipped')
  expect(skipped.map(({ check }) => check)).toEqual(['persistence', 'functions', 'orphans'])
  expect(skipped[1]?.remedy).toContain('+function|list')
  expect(skipped[2]?.remedy).toContain('+scan')
  expect(found.filter(({ level }) => level === 'error')).toEqual([])
})

test('a server that cannot tell what a user may run lacks no right', async () => {
  const asked = { eval: (lua: string, ...rest: [0, string]) => ward.admin.eval(`local redis = {}\n${lua}`, ...rest) }
  const examined = { client: asked, prefix: ward.prefix, limitsPrefix: ward.redis.limits, role: 'worker' }
  const [found] = await rights(examined as never)
  expect(found).toMatchObject({ level: 'skipped', remedy: 'needs Redis 7 or Valkey 8' })
})
