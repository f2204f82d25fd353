import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { startOwnRedis } from '../faults/support/own-redis.ts'
import { fakeProgram, temporaryFolder } from '../support/temporary-folder.ts'
import { aclTemplate, renderAcl } from './acl-line.ts'
import { ROLES } from './roles.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PASSWORD = 'pass word'
const sha256 = createHash('sha256').update(PASSWORD).digest('hex')
const places = { prefix: 'bull', limits: 'sluice', sha256 }

test('what docs/security.md gives to redis-cli is the template, filled in', async () => {
  const [, commands] = /```sh\n(HASH=[\s\S]*?)```/.exec(readFileSync(join(ROOT, 'docs', 'security.md'), 'utf8')) ?? []
  const folder = temporaryFolder()
  fakeProgram(folder, 'redis-cli', 'cat')
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}`, PASSWORD }
  const { stdout } = await promisify(execFile)('sh', ['-c', commands as string], { cwd: ROOT, env })
  expect(stdout.trim()).toBe(renderAcl(aclTemplate('worker'), places).replace(/^user /, 'ACL SETUSER '))
})

test("the lines are those of a server's aclfile, and lose no right when they are loaded twice", async () => {
  const file = join(temporaryFolder(), 'users.acl')
  const lines = ROLES.map((role) => renderAcl(aclTemplate(role), places))
  writeFileSync(file, ['user default on nopass ~* &* +@all', ...lines, ''].join('\n'))
  const { url, host, port } = await startOwnRedis({ args: ['--aclfile', file] })
  const admin = new Redis(url)
  onTestFinished(() => admin.disconnect())
  // Redis gives the rights to subcommands in any order.
  const users = async () => ((await admin.call('ACL', 'LIST')) as string[]).map((user) => user.split(' ').toSorted())
  const before = await users()
  expect(before).toHaveLength(ROLES.length + 1)
  await admin.call('ACL', 'LOAD')
  for (const line of lines) await admin.call('ACL', 'SETUSER', ...line.split(' ').slice(1))
  expect(await users()).toEqual(before)
  await admin.call('ACL', 'SAVE')
  const user = new Redis({ host, port, username: 'sluice-observer', password: PASSWORD })
  onTestFinished(() => user.disconnect())
  expect(await user.llen('bull:emails:wait')).toBe(0)
})
