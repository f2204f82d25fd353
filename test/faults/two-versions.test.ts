import { expect, test, vi } from 'vitest'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { installedScripts, ScriptSet } from '../../src/redis/scripts.ts'
import { VERSION } from '../../src/version.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet } from './support/fleet.ts'
import { librariesOn, runs } from './support/functions.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'

const own = installedScripts().library
const other = new ScriptSet(captureBullmqScripts(), VERSION, (file) => `local version = 2\n${readLuaFile(file)}`)
const SHAPE = { rate: '500/s', burst: 5, capacity: 1000, maxLatenessMs: 60_000 }
const BUCKET = { intervalUs: 2000, burst: 5 }

test('two versions work side by side on one queue, and each loads its functions again', async () => {
  const { name } = other.library
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const open = async () => {
    const queue = fleet.queue('mail', { connection, shape: SHAPE })
    await queue.waitUntilReady()
    await fleet.worker('mail', { connection, concurrency: 5 }).waitUntilReady()
    return queue
  }
  const { define } = ScriptSet.prototype
  const version = vi.spyOn(ScriptSet.prototype, 'define').mockImplementation((...of) => define.call(other, ...of))
  const others = await open()
  version.mockRestore()
  const queue = await open()
  const producers = [new Producer(queue, { name: 'own' }), new Producer(others, { name: 'other' })]
  const ended = (count: number) => fleet.until(() => fleet.completed.length >= count)
  await ended(50)
  expect(await librariesOn(admin)).toEqual([own.name, name].toSorted())
  for (const deleted of [own.name, name]) {
    await admin.call('FUNCTION', 'DELETE', deleted)
    await ended(fleet.completed.length + 50)
  }
  for (const producer of producers) await producer.stop()
  const accepted = producers.flatMap((producer) => producer.accepted)
  await fleet.until(() => accepted.every((id) => fleet.completed.includes(id)))
  expect(await librariesOn(admin)).toEqual([own.name, name].toSorted())
  expect(fleet.departures.map(({ jobId }) => jobId).toSorted()).toEqual(accepted.toSorted())
  expect({ failed: fleet.failed, errors: fleet.errors, ...(await runs(admin)) }).toMatchObject({
    ...{ failed: [], errors: [], texts: 0 },
    loads: 4,
  })
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})
