import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { packagesToUnpack } from '../../workers/services/apt-download.ts'
import { buildOnce } from '../../workers/services/build-once.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

test('of several that build at the same time one wins, whole, and nothing else is left', async () => {
  const parent = temporaryFolder()
  const folder = join(parent, 'made')
  const builders = ['a', 'b', 'c']
  let waiting = builders.length
  let release = () => {}
  const allBegun = new Promise<void>((resolve) => {
    release = resolve
  })
  const build = (name: string) => async (building: string) => {
    await writeFile(join(building, 'first'), name)
    waiting -= 1
    if (waiting === 0) release()
    await allBegun
    expect(existsSync(folder) && readdirSync(folder).length < 2).toBe(false)
    await writeFile(join(building, 'second'), name)
  }
  await Promise.all(builders.map((name) => buildOnce(folder, build(name))))
  expect(readdirSync(parent)).toEqual(['made'])
  const winner = readFileSync(join(folder, 'first'), 'utf8')
  expect(builders).toContain(winner)
  expect(readFileSync(join(folder, 'second'), 'utf8')).toBe(winner)
})

test('a build that fails leaves nothing and says why', async () => {
  const parent = temporaryFolder()
  await expect(buildOnce(join(parent, 'made'), () => Promise.reject(new Error('no network')))).rejects.toThrow(
    'no network',
  )
  expect(readdirSync(parent)).toEqual([])
})

test('of a simulated installation the server and the libraries are unpacked', () => {
  const plan = [
    'Inst libc6 (2.41-12 Debian:13/stable [amd64])',
    'Inst adduser (3.152 Debian:13/stable [all])',
    'Inst liblzf1 (3.6-4 Debian:13/stable [amd64])',
    'Inst redis-tools (5:8.0.2-3 Debian:13/stable [amd64])',
    'Inst redis-server (5:8.0.2-3 Debian:13/stable [amd64])',
    'Conf redis-server (5:8.0.2-3 Debian:13/stable [amd64])',
  ].join('\n')
  expect(packagesToUnpack(plan)).toEqual(['libc6', 'liblzf1', 'redis-tools', 'redis-server'])
})
