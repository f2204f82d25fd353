import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLimiter, type LimiterOptions } from '../../../src/limits/index.ts'

/** Takes from a limit until it is told to stop, and reports each grant with Redis's times before and after it, µs. */
const [url, options] = process.argv.slice(2) as [string, string]
const redis = new Redis(url)
const limiter = createLimiter(redis, { timeoutMs: 10_000, ...(JSON.parse(options) as LimiterOptions) })

async function nowUs(): Promise<number> {
  const [seconds, micros] = (await redis.time()).map(Number) as [number, number]
  return seconds * 1_000_000 + micros
}

let stopped = false
process.on('message', (message) => {
  if (message === 'stop') stopped = true
  else void run()
})

async function run(): Promise<void> {
  while (!stopped) {
    const fromUs = await nowUs()
    const { allowed, retryAfterMs } = await limiter.take()
    if (allowed) process.send?.({ type: 'granted', fromUs, toUs: await nowUs() })
    else await sleep(Math.min(retryAfterMs, 20))
  }
  redis.disconnect()
  process.disconnect()
}

await redis.ping()
process.send?.({ type: 'ready' })
