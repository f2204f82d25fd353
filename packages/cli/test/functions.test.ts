import { Redis } from 'ioredis'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { installedScripts } from '../../../src/redis/scripts.ts'
import { OwnCluster } from '../../../test/faults/support/own-cluster.ts'
import { forged, libraryOf } from '../../../test/support/libraries.ts'
import type { TestRedis } from '../../../test/support/redis.ts'
import type { RedisService } from '../../../workers/services/redis.ts'
import { startRedis } from '../../../workers/services/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const own = installedScripts().library
const [older, newer] = [libraryOf('older'), libraryOf('newer')]

// Functions belong to the whole server, so this file has one of its own.
let service: RedisService
let admin: Redis
beforeAll(async () => {
  service = await startRedis({ ignoreGiven: true })
  admin = new Redis(service.url)
  return async () => {
    admin.disconnect()
    await service.stop()
  }
})
beforeEach(async () => void (await admin.call('FUNCTION', 'FLUSH')))

const at = (url = service.url) => ({ url, prefix: 'bull' }) as TestRedis
const run = (...args: string[]) => runHere(at(), ['functions', ...args])
const json = (...args: string[]) => jsonHere(at(), ['functions', ...args])
const load = async (...libraries: { text: string }[]) => {
  for (const { text } of libraries) await admin.call('FUNCTION', 'LOAD', text)
}
const namesThere = async () => ((await json('list')).libraries as { name: string }[]).map(({ name }) => name)

describe('functions load', () => {
  test('loads the library of this version once, and says so', async () => {
    const address = `127.0.0.1:${service.port}`
    expect(await run('load')).toMatchObject({ code: 0, stdout: `${address}: ${own.name} is loaded\n` })
    expect(await run('load')).toMatchObject({ code: 0, stdout: `${address}: ${own.name} was loaded before\n` })
    expect(await json('load')).toEqual({ library: own.name, masters: [{ address, loaded: false }] })
    await admin.call('FUNCTION', 'FLUSH')
    expect((await json('load')).masters).toEqual([{ address, loaded: true }])
  })

  test('another text by its name is an error, and stays', async () => {
    await load(forged(own))
    const { code, stdout, stderr } = await run('load')
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toContain(`sluice functions delete ${own.name} --force`)
    expect((await json('list')).libraries).toMatchObject([{ isCurrent: true, isForged: true, functions: 1 }])
  })

  test('a full Redis refuses it, in its own words', async () => {
    await admin.config('SET', 'maxmemory', '1')
    const { code, stderr } = await run('load')
    await admin.config('SET', 'maxmemory', '0')
    expect([code, stderr]).toEqual([3, expect.stringContaining('OOM')])
  })

  test('on a cluster it loads on each master that lacks it', async () => {
    const cluster = await OwnCluster.start()
    const there = (command: string) => jsonHere(at(cluster.url), ['functions', command, '--cluster'])
    const loadedOn = async () => (await there('load')).masters.map(({ loaded }: { loaded: boolean }) => loaded)
    expect(await loadedOn()).toEqual([true, true, true])
    const node = new Redis(cluster.url)
    await node.call('FUNCTION', 'FLUSH')
    node.disconnect()
    expect((await there('list')).libraries).toMatchObject([{ name: own.name, masters: 2 }])
    expect((await loadedOn()).toSorted()).toEqual([false, false, true])
    expect(await there('list')).toMatchObject({ masters: 3, libraries: [{ masters: 3 }] })
  })
})

describe('functions list', () => {
  test('tells this version from others and from forged ones, and leaves those of other programs out', async () => {
    await load(own, older, forged(newer))
    await admin.call('FUNCTION', 'LOAD', "#!lua name=sluice_mine\nredis.register_function('theirs', function() end)")
    const { libraries, memoryBytes, ...rest } = await json('list')
    expect(rest).toEqual({ current: own.name, masters: 1 })
    const byName = new Map(libraries.map((library: { name: string }) => [library.name, library]))
    const about = { masters: 1, functions: 1, isCurrent: false }
    expect(byName.get(older.name)).toMatchObject({ ...about, isForged: false, textBytes: older.text.length })
    expect(byName.get(newer.name)).toMatchObject({ ...about, isForged: true })
    expect(byName.get(own.name)).toMatchObject({ isCurrent: true, isForged: false })
    expect(byName.size).toBe(3)
    expect(memoryBytes).toBeGreaterThan(own.text.length)
    const { stdout } = await run('list')
    expect(stdout).toMatch(new RegExp(`^${own.name} +this +\\d+ +\\d+ kB +1 of 1$`, 'm'))
    expect(stdout).toMatch(new RegExp(`^${older.name} +another +1 +`, 'm'))
    expect(stdout).toMatch(new RegExp(`^${newer.name} +forged +1 +`, 'm'))
    expect(stdout).toMatch(/\nfunctions take \S+ MB of memory\n$/)
  })

  test('says if that of this version is not there', async () => {
    expect((await run('list')).stdout).toMatch(new RegExp(`^that of this version, ${own.name}, is not loaded\n`))
  })
})

describe('functions delete', () => {
  test('deletes those that are named', async () => {
    await load(older, newer, own)
    expect((await run('delete', older.name)).stdout).toBe(`deleted: ${older.name}\n`)
    expect(await namesThere()).toEqual([newer.name, own.name].toSorted())
  })

  test('--others leaves that of this version', async () => {
    await load(older, newer, own)
    expect(await json('delete', '--others')).toEqual({ deleted: [older.name, newer.name].toSorted() })
    expect(await json('delete', '--others')).toEqual({ deleted: [] })
    expect(await namesThere()).toEqual([own.name])
  })

  test('that of this version goes only with --force', async () => {
    await load(own, older)
    expect(await run('delete', older.name, own.name)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--force'),
    })
    expect(await namesThere()).toHaveLength(2)
    expect(await json('delete', own.name, '--force')).toEqual({ deleted: [own.name] })
    expect(await namesThere()).toEqual([older.name])
  })

  test.each([
    ['nothing', [], 2],
    ['names and --others', [older.name, '--others'], 2],
    ['a library of another program', ['sluice_mine'], 2],
    ['one that is not there, beside one that is', [older.name, newer.name], 4],
  ])('%s is refused, and nothing is deleted', async (_what, args, code) => {
    await load(older)
    expect((await run('delete', ...args)).code).toBe(code)
    expect(await namesThere()).toEqual([older.name])
  })
})
