import type { Redis } from 'ioredis'
import { type Examined, type Finding, Findings, permitted } from '../check.ts'

const SAMPLES = 7
/** NTP keeps clocks within a few ms. */
const WARNING_MS = 100
const ERROR_MS = 60_000

/**
 * The offset between this machine's clock and Redis's. Slots, and delays on a queue with a shape, follow Redis's clock;
 * delays of plain BullMQ, and the age of finished jobs, follow those of the clients.
 */
export async function clockOffset({ client, nowMs }: Examined): Promise<Finding[]> {
  const findings = new Findings('clock')
  return permitted(findings, '+time', async () => {
    const { offsetMs, errorMs } = await measuredOffset(client, nowMs)
    const apart = Math.abs(offsetMs)
    const text = `${apart.toFixed(apart < 100 ? 1 : 0)} ms ${offsetMs < 0 ? 'ahead of' : 'behind'} Redis's (± ${errorMs.toFixed(1)} ms)`
    const message = `the clock of this machine is ${text}`
    const remedy =
      'run NTP on both machines: plain BullMQ delays jobs, and all clients date finished ones, by their own clock'
    if (apart - errorMs >= ERROR_MS) return [findings.error(message, remedy)]
    if (apart - errorMs >= WARNING_MS) return [findings.warning(message, remedy)]
    return [findings.ok(message)]
  })
}

/** Takes the shortest of several round trips: the clock was read somewhere within it (Cristian, 1989). */
async function measuredOffset(client: Redis, nowMs: () => number): Promise<{ offsetMs: number; errorMs: number }> {
  let best = { offsetMs: 0, errorMs: Number.POSITIVE_INFINITY }
  for (let i = 0; i < SAMPLES; i++) {
    const sent = performance.now()
    const sentMs = nowMs()
    const [seconds, us] = (await client.time()) as unknown as [string, string]
    const errorMs = (performance.now() - sent) / 2
    const redisMs = Number(seconds) * 1000 + Number(us) / 1000
    if (errorMs < best.errorMs) best = { offsetMs: redisMs - (sentMs + errorMs), errorMs }
  }
  return best
}
