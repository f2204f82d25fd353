import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { InvalidInputError } from '../../src/errors.ts'
import { aclTemplate, renderAcl, roleCommands } from './acl-line.ts'
import { ROLE_NEEDS, ROLES } from './roles.ts'
import { commandsOfLua, commandsOfScripts, scriptTexts } from './script-commands.ts'

const FOLDER = new URL('../../docs/acl/', import.meta.url)
const SHA256 = createHash('sha256').update('secret').digest('hex')
const fileOf = (role: string) => readFileSync(new URL(`${role}.acl`, FOLDER), 'utf8')

test.each(ROLES)('docs/acl/%s.acl is what is generated (else: npm run acl)', (role) => {
  expect(fileOf(role)).toBe(`${aclTemplate(role)}\n`)
})

test('src/redis/role-commands.ts is what is generated (else: npm run acl)', () => {
  const written = readFileSync(new URL('../../src/redis/role-commands.ts', import.meta.url), 'utf8')
  expect(written).toBe(roleCommands())
})

test('there is a file for each role, and no other', () => {
  expect(readdirSync(FOLDER).toSorted()).toEqual(ROLES.map((role) => `${role}.acl`).toSorted())
})

/** What no role runs: BullMQ's relay is another thing, and a script that is composed is run in its composed form. */
const NOBODYS =
  /^bullmq:(relay|add(Standard|Prioritized|Delayed|Parent)Job$|(add|update)JobScheduler$|changeDelay$|retryJob$|extendLocks?$|moveStalledJobsToWait$)/

test('every script is run by a role', () => {
  const run = new Set(ROLES.flatMap((role) => ROLE_NEEDS[role].scripts))
  expect([...scriptTexts().keys()].filter((name) => !run.has(name) && !NOBODYS.test(name))).toEqual([])
})

test('a script that BullMQ has no longer is noticed', () => {
  expect(() => commandsOfScripts(['bullmq:gone'])).toThrow(InvalidInputError)
})

test.each([
  ['a call', "redis.call('GET', KEYS[1])", ['get']],
  ['a protected call', 'redis.pcall("hget", k)', ['hget']],
  ["BullMQ's name for it", 'local rcall = redis.call\nrcall("XADD", k, "*", "a", 1)', ['xadd']],
  ['a command by name', 'commands.HSET("HSET", k, f, v)', ['hset']],
  ['one of many names', "local base, call = b, redis.call\nreturn call('LINDEX', k, -1)", ['lindex']],
  ['calls over lines and in calls', "redis.call(\n  'SET', k, redis.call('TIME')[1])", ['set', 'time']],
  ['a command by a variable that is known', 'local rcall = redis.call\nrcall(pushCmd, k, id)', ['lpush', 'rpush']],
  ['no comments', "-- redis.call('FLUSHALL')\n--[[ redis.call('KEYS', '*')\n]]\nreturn 1", []],
  ['no other calls', 'pcall(run_job, 1) helper_call(x)', []],
])('a text is searched: %s', (_what, lua, commands) => {
  expect(commandsOfLua('test', lua)).toEqual(commands)
})

test.each([
  ['a command by a variable', 'redis.call(command, key)'],
  ['another name', "local send = redis.call\nsend('GET', key)"],
  ['handed on', 'each(keys, redis.call)'],
])('what can not be told is refused: %s', (_what, lua) => {
  expect(() => commandsOfLua('test', lua)).toThrow(/script "test"/)
})

test('a template is filled in, as sed does it', () => {
  const line = renderAcl(aclTemplate('limiter'), { prefix: 'shop', limits: 'shop-limits', sha256: SHA256 })
  expect(line).toContain(`reset on #${SHA256} ~shop-limits:limit:* %R~shop-limits:modes ~shop:*:meta:sleepers `)
  expect(line).not.toMatch(/[{}]/)
})

test('a prefix stands for itself alone', () => {
  const line = renderAcl(aclTemplate('producer'), { prefix: '{a*b}[c]', sha256: SHA256 })
  expect(line).toContain(' ~{a\\*b}\\[c\\]:* ~sluice:limit:*')
})

test.each([
  [{ prefix: '', sha256: SHA256 }],
  [{ prefix: 'a b', sha256: SHA256 }],
  [{ prefix: 'bull', limits: 'a ~*', sha256: SHA256 }],
  [{ prefix: 'bull', sha256: 'secret' }],
])('a rule is not changed by what is filled in: %j', (places) => {
  expect(() => renderAcl(aclTemplate('producer'), places)).toThrow(InvalidInputError)
})
