import { beforeEach, expect, test } from 'vitest'
import { installedScripts } from '../../../../src/redis/scripts.ts'
import { forged, libraryOf } from '../../../../test/support/libraries.ts'
import type { Finding } from '../../src/doctor/check.ts'
import { server, Ward } from './support.ts'

const ward = new Ward()
const own = installedScripts().library
const older = libraryOf('older')

beforeEach(async () => void (await ward.admin.call('FUNCTION', 'FLUSH')))

function ofFunctions(findings: readonly Finding[]): Finding[] {
  return findings.filter(({ check }) => check === 'functions')
}

test('a worker that may not load them is told who does, until that is done', async () => {
  const skipped = { level: 'skipped', remedy: expect.stringContaining('+function|list') }
  const before = ofFunctions(await ward.examine({ user: 'worker' }))
  expect(before).toMatchObject([{ level: 'note', message: expect.stringContaining(own.name) }, skipped])
  expect(before[0]?.remedy).toContain('sluice functions load')
  await ward.redis.loadFunctions()
  expect(ofFunctions(await ward.examine({ user: 'worker' }))).toMatchObject([{ level: 'ok' }, skipped])
})

test('libraries of other versions are listed with their memory, and with what deletes them', async () => {
  for (const { text } of [older, libraryOf('newer')]) await ward.admin.call('FUNCTION', 'LOAD', text)
  await ward.admin.call('FUNCTION', 'LOAD', "#!lua name=other\nredis.register_function('theirs', function() end)")
  const [state, others, ...more] = ofFunctions(await ward.examine())
  expect(state?.level).toBe('ok')
  expect(others).toMatchObject({ level: 'note', remedy: expect.stringContaining('sluice functions delete --others') })
  for (const { name } of [older, libraryOf('newer')]) expect(others?.message).toContain(`${name} (1`)
  expect(others?.message).toMatch(/all functions take [1-9][\d.]* MB of memory$/)
  expect(more).toEqual([])
})

test.each([
  ['of this version', own],
  ['of another', older],
])('a library %s that somebody has replaced is an error', async (_which, library) => {
  await ward.admin.call('FUNCTION', 'LOAD', forged(library).text)
  expect(ofFunctions(await ward.examine())).toContainEqual(
    expect.objectContaining({ level: 'error', message: expect.stringContaining(library.name) }),
  )
})

test('a user that may not call functions is told what to grant', async () => {
  const client = await ward.userLike('worker', '-fcall')
  expect(ofFunctions(await ward.examineWith(client))).toMatchObject([
    { level: 'note', remedy: expect.stringContaining('+fcall') },
    { level: 'skipped' },
  ])
})

test('a server without functions is no error', async () => {
  const { client } = await server({
    args: ['--rename-command', 'FCALL', '', '--rename-command', 'FUNCTION', ''],
  })
  const found = await ward.examineWith(client)
  expect(ofFunctions(found)).toMatchObject([{ level: 'note', remedy: expect.stringContaining("functions: 'never'") }])
  expect(found.find(({ check }) => check === 'canary')?.level).toBe('ok')
})
