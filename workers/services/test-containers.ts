// `npm run test:containers`: the suite against a Redis that testcontainers runs; arguments go to vitest.
import { startRedisContainer } from './redis-testcontainer.ts'
import { runSuite } from './run-suite.ts'

try {
  const redis = await startRedisContainer()
  try {
    process.exitCode = await runSuite({ ...process.env, REDIS_URL: redis.url }, process.argv.slice(2))
  } finally {
    await redis.stop()
  }
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`)
  process.exitCode = 1
}
