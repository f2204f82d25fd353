import { findProgram } from './find-program.ts'
import { fetchAptServer } from './redis-apt.ts'
import { dockerAnswers, REDIS_IMAGE, runRedisContainer } from './redis-docker.ts'
import { startEmulator } from './redis-emulator.ts'
import { useGivenRedis } from './redis-given.ts'
import { runRedisProcess } from './redis-process.ts'
import type { RedisKind, RedisService, StartRedisOptions } from './redis-service.ts'

/** Says why a source of Redis cannot be used here; the chain goes on with the next. */
export class SourceUnavailableError extends Error {
  override readonly name = 'SourceUnavailableError'
}

/** One place a Redis can come from. */
export interface RedisSource {
  kind: RedisKind
  /** Starts it, or rejects: with {@link SourceUnavailableError} where the machine does not have what it needs. */
  start(options: StartRedisOptions, env: NodeJS.ProcessEnv): Promise<RedisService>
}

/** The sources in the order they are tried, from the one that a user chose to the one least like production. */
export const redisSources: readonly RedisSource[] = [
  { kind: 'given', start: startGiven },
  { kind: 'path', start: startFromPath },
  { kind: 'docker', start: startInDocker },
  { kind: 'apt', start: startFromApt },
  { kind: 'emulator', start: startEmulated },
]

async function startGiven(options: StartRedisOptions, env: NodeJS.ProcessEnv): Promise<RedisService> {
  if (options.ignoreGiven) throw new SourceUnavailableError('REDIS_URL is not used for a server that will be killed')
  if (!env.REDIS_URL) throw new SourceUnavailableError('REDIS_URL is not set')
  return useGivenRedis(env.REDIS_URL)
}

async function startFromPath(options: StartRedisOptions, env: NodeJS.ProcessEnv): Promise<RedisService> {
  const binary = findProgram(['redis-server', 'valkey-server'], env)
  if (!binary) throw new SourceUnavailableError('neither redis-server nor valkey-server is on PATH')
  return runRedisProcess(binary, 'path', `found on PATH (${binary})`, options)
}

/** They are not asked again: a question takes 80 ms of CPU time, and tests start hundreds of servers. */
const silentEngines = new Set<string>()

async function startInDocker(options: StartRedisOptions, env: NodeJS.ProcessEnv): Promise<RedisService> {
  const docker = findProgram(['docker'], env)
  if (!docker) throw new SourceUnavailableError('docker is not on PATH')
  const engine = `${docker} ${env.DOCKER_HOST ?? ''}`
  if (silentEngines.has(engine) || !(await dockerAnswers(docker, env))) {
    silentEngines.add(engine)
    throw new SourceUnavailableError('no Docker engine answers')
  }
  return runRedisContainer(docker, options).catch((error: Error) => {
    throw new SourceUnavailableError(`Docker answers, but ${REDIS_IMAGE} does not run: ${error.message}`, {
      cause: error,
    })
  })
}

async function startFromApt(options: StartRedisOptions, env: NodeJS.ProcessEnv): Promise<RedisService> {
  if (!findProgram(['apt-get'], env) || !findProgram(['dpkg'], env)) {
    throw new SourceUnavailableError('apt-get is not on PATH')
  }
  const binary = await fetchAptServer({ packageName: 'redis-server' }).catch((error: Error) => {
    throw new SourceUnavailableError(`the download with apt-get failed: ${error.message}`, { cause: error })
  })
  return runRedisProcess(binary, 'apt', 'downloaded with apt-get into .cache, nothing installed', options)
}

async function startEmulated(options: StartRedisOptions): Promise<RedisService> {
  if (!options.allowEmulator) throw new SourceUnavailableError('the emulator is not accepted here')
  if (options.persistence === 'aof') throw new SourceUnavailableError('the emulator has no persistence')
  return startEmulator(options.port)
}
