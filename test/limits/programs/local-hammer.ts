import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLimiter, type LimiterOptions } from '../../../src/limits/index.ts'

/**
 * A process that takes from one key of a limit as fast as it can once its parent says 'go', for `forMs`. Now and then it
 * takes one, waits for `hoardMs` and takes all that it has then, which is the worst that a process with a share can do.
 */
export interface HammerArgs {
  readonly url: string
  readonly limiter: LimiterOptions
  readonly forMs: number
  readonly hoardMs: number
}
export type Hammered = { type: 'ready' } | { type: 'hammered'; passedUs: number[]; refused: number; sent: number }

const { url, limiter: options, forMs, hoardMs } = JSON.parse(process.argv[2] as string) as HammerArgs
const redis = new Redis(url)
let sent = 0
const send = redis.sendCommand.bind(redis)
redis.sendCommand = (...args) => {
  sent++
  return send(...args)
}
const limiter = createLimiter(redis, options)
const tell = (message: Hammered) => process.send?.(message)

/** The same clock for all processes of a machine. */
const nowUs = () => Number(process.hrtime.bigint() / 1000n)

async function hammer(): Promise<void> {
  const passedUs: number[] = []
  let refused = 0
  const take = async (): Promise<boolean> => {
    const { allowed } = await limiter.take('joe')
    if (allowed) passedUs.push(nowUs())
    else refused++
    return allowed
  }
  const end = performance.now() + forMs
  while (performance.now() < end) {
    // All of them at about the same time, when the limit has recovered.
    await sleep(2 * hoardMs)
    await take()
    await sleep(hoardMs)
    const hammerEnd = performance.now() + hoardMs
    while (performance.now() < hammerEnd) if (!(await take())) await setImmediate()
  }
  tell({ type: 'hammered', passedUs, refused, sent })
}

process.once(
  'message',
  () =>
    void hammer()
      .finally(() => redis.disconnect())
      .finally(() => process.disconnect()),
)
await redis.ping()
await limiter.peek('joe')
sent = 0
tell({ type: 'ready' })
