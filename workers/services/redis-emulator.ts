import { once } from 'node:events'
import type { Socket } from 'node:net'
import type { RedisService } from './redis-service.ts'

const HOST = '127.0.0.1'

/**
 * Starts the in-process emulator (js-redis-server): Redis's commands and Lua, slow and without persistence. It is put
 * together from its parts because the ready-made server listens on every address of the machine.
 */
export async function startEmulator(port = 0): Promise<RedisService> {
  const { createRedisCommandExecutor, RedisServerState, Resp2Server } = await import('js-redis-server/core')
  const emulator = new Resp2Server({
    server: new RedisServerState({ databaseCount: 16 }),
    executor: createRedisCommandExecutor(),
  })
  const sockets = new Set<Socket>()
  emulator.server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  emulator.server.listen(port, HOST)
  await once(emulator.server, 'listening')
  const boundPort = emulator.getPort()
  const refuse = () =>
    Promise.reject(new Error('the Redis emulator keeps nothing: it can be neither killed nor restarted'))
  let stopped = false
  return {
    url: `redis://${HOST}:${boundPort}`,
    host: HOST,
    port: boundPort,
    kind: 'emulator',
    source: 'js-redis-server, an emulator inside this process: a slow stand-in for Redis, for demonstration only',
    pid: undefined,
    kill: refuse,
    restart: refuse,
    stop: async () => {
      if (stopped) return
      stopped = true
      for (const socket of sockets) socket.destroy()
      await emulator.close()
    },
  }
}
