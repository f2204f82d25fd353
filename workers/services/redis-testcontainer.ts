import { REDIS_IMAGE } from './redis-docker.ts'
import { serverArguments } from './redis-service.ts'

/** A Redis in a container that testcontainers started. */
export interface RedisContainer {
  readonly url: string
  stop(): Promise<void>
}

/** Starts {@link REDIS_IMAGE} through testcontainers. Rejects with one clear line where no Docker engine answers. */
export async function startRedisContainer(): Promise<RedisContainer> {
  const { GenericContainer, getContainerRuntimeClient } = await import('testcontainers')
  await getContainerRuntimeClient().catch((error: Error) => {
    throw new Error(`No Docker engine answers (${error.message}): start one, or run npm test`, { cause: error })
  })
  const container = await new GenericContainer(REDIS_IMAGE)
    .withExposedPorts(6379)
    .withCommand(['redis-server', ...serverArguments({})])
    .start()
  return {
    url: `redis://${container.getHost()}:${container.getMappedPort(6379)}`,
    stop: async () => {
      await container.stop()
    },
  }
}
