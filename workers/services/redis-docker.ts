import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { holdLifeline, onExit } from './exit-hook.ts'
import { findFreePort } from './free-port.ts'
import { probeRedis } from './redis-probe.ts'
import { type RedisService, type StartRedisOptions, serverArguments } from './redis-service.ts'
import { runCommand } from './run-command.ts'

/** The image of every Redis container of this project. */
export const REDIS_IMAGE = 'redis:7-alpine'

const HOST = '127.0.0.1'
const START_TIMEOUT_MS = 60_000

/** Whether a Docker engine answers the client at `docker` within 5 s. */
export async function dockerAnswers(docker: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  try {
    await runCommand(docker, ['info', '--format', '{{.ServerVersion}}'], { env, timeoutMs: 5000 })
    return true
  } catch {
    return false
  }
}

/** Starts a container whose port is published on loopback only. Data live in the container until it is stopped. */
export async function runRedisContainer(docker: string, options: StartRedisOptions): Promise<RedisService> {
  const env = { ...process.env, ...options.env }
  const run = (...args: string[]) => runCommand(docker, args, { env })
  const port = options.port ?? (await findFreePort())
  const name = `sluice-redis-${randomUUID()}`
  const volume = options.dir === undefined ? [] : ['-v', `${options.dir}:/data`]
  const removal = ['rm', '-f', '-v', name]
  const server = ['redis-server', ...serverArguments(options)]
  const cutLifeline = holdLifeline([docker, ...removal])
  const forgetExit = onExit(() => execFileSync(docker, removal, { env, stdio: 'ignore' }))
  const stop = async () => {
    await run(...removal)
    cutLifeline()
    forgetExit()
  }
  try {
    await run('run', '-d', '--name', name, '-p', `${HOST}:${port}:6379`, ...volume, REDIS_IMAGE, ...server)
    const version = await waitUntilReady(port, () => assertRunning(docker, name, env))
    return {
      ...{ url: `redis://${HOST}:${port}`, host: HOST, port, kind: 'docker', pid: undefined },
      source: `${version}, in a Docker container of ${REDIS_IMAGE}`,
      kill: async (signal = 'SIGKILL') => {
        await run('kill', '-s', signal, name)
        await run('wait', name)
      },
      restart: async () => {
        await run('restart', name)
        await waitUntilReady(port, () => assertRunning(docker, name, env))
      },
      stop,
    }
  } catch (error) {
    await stop().catch(() => {})
    throw error
  }
}

async function waitUntilReady(port: number, assertAlive: () => Promise<void>): Promise<string> {
  const deadline = Date.now() + START_TIMEOUT_MS
  for (;;) {
    const identity = await probeRedis(HOST, port)
    if (identity) return identity.version
    await assertAlive()
    if (Date.now() > deadline) throw new Error(`the Redis container gave no PONG within ${START_TIMEOUT_MS} ms`)
    await delay(50)
  }
}

async function assertRunning(docker: string, name: string, env: NodeJS.ProcessEnv): Promise<void> {
  const running = await runCommand(docker, ['inspect', '--format', '{{.State.Running}}', name], { env })
  if (running.trim() === 'true') return
  const log = await runCommand(docker, ['logs', '--tail', '3', name], { env, withStderr: true })
  throw new Error(`the Redis container ended before it was ready: ${log.trim().split('\n').join(' / ')}`)
}
