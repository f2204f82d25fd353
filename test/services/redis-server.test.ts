import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test, vi } from 'vitest'
import { findFreePort } from '../../workers/services/free-port.ts'
import { type RedisService, type StartRedisOptions, startRedis } from '../../workers/services/redis.ts'
import { useProcesses } from '../support/processes.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const processes = useProcesses()

async function start(options: StartRedisOptions = {}): Promise<RedisService> {
  const service = await startRedis({ ignoreGiven: true, ...options })
  onTestFinished(() => service.stop())
  return service
}

async function withClient<Result>(url: string, use: (client: Redis) => Promise<Result>): Promise<Result> {
  const client = new Redis(url, { retryStrategy: () => null })
  try {
    return await use(client)
  } finally {
    client.disconnect()
  }
}

const isRefused = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(false)
    })
    socket.once('error', () => resolve(true))
  })

test('a killed server with AOF comes back on the same port with every acknowledged write', async () => {
  const service = await start({ persistence: 'aof' })
  const { port, url } = service
  await withClient(url, async (client) => {
    await Promise.all(Array.from({ length: 500 }, (_, index) => client.rpush('list', index)))
  })
  await service.kill()
  expect(await isRefused(port)).toBe(true)
  await service.restart()
  expect(service.port).toBe(port)
  expect(await withClient(url, (client) => client.llen('list'))).toBe(500)
})

test('a killed server without persistence comes back empty', async () => {
  const service = await start()
  await withClient(service.url, (client) => client.set('key', 'value'))
  await service.kill()
  await service.restart()
  expect(await withClient(service.url, (client) => client.dbsize())).toBe(0)
})

test('restart of a running server keeps its data on disk', async () => {
  const service = await start({ persistence: 'aof' })
  await withClient(service.url, (client) => client.set('key', 'value'))
  await service.restart()
  expect(await withClient(service.url, (client) => client.get('key'))).toBe('value')
})

test('it never evicts, takes no snapshots and listens on loopback only', async () => {
  const service = await start()
  const config = await withClient(service.url, async (client) => ({
    policy: (await client.config('GET', 'maxmemory-policy')) as string[],
    save: (await client.config('GET', 'save')) as string[],
  }))
  expect(config).toEqual({ policy: ['maxmemory-policy', 'noeviction'], save: ['save', ''] })
  expect(service.host).toBe('127.0.0.1')
})

test('the given port, folder and further arguments are used, and the folder stays', async () => {
  const dir = join(temporaryFolder(), 'data')
  const port = await findFreePort()
  const service = await start({ dir, port, persistence: 'aof', args: ['--databases', '3'] })
  expect(service.port).toBe(port)
  expect(await withClient(service.url, (client) => client.config('GET', 'databases'))).toEqual(['databases', '3'])
  await service.stop()
  expect(existsSync(join(dir, 'appendonlydir'))).toBe(true)
})

test('stop may be called twice and frees the port', async () => {
  const service = await start()
  await service.stop()
  await service.stop()
  expect(await isRefused(service.port)).toBe(true)
})

test('a server that cannot start is an error with its own words', async () => {
  await expect(start({ args: ['--no-such-setting', '1'] })).rejects.toThrow(/no-such-setting/)
})

test.each(['SIGKILL', 'SIGINT', 'exit'] as const)('the server ends with its parent: %s', async (ending) => {
  type Ready = { type: 'ready'; url: string; port: number }
  const program = processes.fork<Ready>(new URL('../support/programs/hold-redis.ts', import.meta.url))
  const { port } = await program.waitFor('ready')
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  // A killed server's connections may end with a reset, which is an end as well.
  socket.on('error', () => {})
  const closed = new Promise((resolve) => socket.resume().once('close', resolve))
  if (ending === 'exit') program.send('exit')
  else await program.kill(ending)
  await Promise.all([closed, program.exited])
  // The kernel may close a dying server's connections a moment before its listening socket.
  await vi.waitFor(async () => expect(await isRefused(port)).toBe(true), 60_000)
})
