import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished } from 'vitest'
import type { Processes } from '../../../../test/support/processes.ts'
import { startProxy } from '../../../../test/support/proxy.ts'
import type { TestRedis } from '../../../../test/support/redis.ts'
import { withQueue } from '../../../workers/test/queues.ts'
import { ANY, post, type RunningGateway, startGateway } from '../program/support.ts'

const PRODUCERS = 4
const RETRY_MS = 20
/** Stands in the data of every job, so that its script is known among all commands. */
const MARK = 'kill-under-load'

/** What the producers were told. */
interface Told {
  /** The id of each job by its key. */
  readonly ids: Map<string, string>
  replays: number
  /** Answers that never came, and 503. */
  failures: number
}

/**
 * Kills gateways with SIGKILL, each when Redis has run the script of a job and the gateway has not heard of it, while
 * producers send jobs and send each again with the same key until they are told that it was accepted. Then every accepted
 * job must be in the queue, exactly once, by the id that its producer was told.
 */
export async function killUnderLoad(redis: TestRedis, processes: Processes, kills: number): Promise<void> {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const env = { REDIS_URL: proxy.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, LOG_LEVEL: 'info' }
  const start = () => startGateway(processes, { queues: { jobs: { ...ANY, idempotency: 'required' } } }, env)
  let gateway = await start()
  const told: Told = { ids: new Map(), replays: 0, failures: 0 }
  const stop = new AbortController()
  const producers = Array.from({ length: PRODUCERS }, (_, i) => produce(`p${i}`, () => gateway, told, stop.signal))
  for (let kill = 0; kill < kills; kill++) {
    const next = start()
    // Whoever was left without an answer by the last kill has it now.
    await expect.poll(() => told.replays).toBeGreaterThanOrEqual(kill)
    await expect.poll(() => told.ids.size).toBeGreaterThan(kill)
    const withheld = proxy.dropReplyOf((words) => words.some((word) => word.includes(MARK)), 1, { holdOpen: true })
    await withheld
    await gateway.program.kill('SIGKILL')
    gateway = await next
  }
  stop.abort()
  await Promise.all(producers)
  await gateway.program.kill('SIGTERM')
  await withQueue(redis, 'jobs', async (queue) => {
    const jobs = await queue.getJobs(['waiting'], 0, -1)
    const stored = jobs.map(({ id = '', data }) => [(data as { key: string }).key, id] as const)
    expect(stored.toSorted()).toEqual([...told.ids].toSorted())
  })
  process.stdout.write(
    `${kills} gateways killed: ${told.ids.size} jobs accepted, each there once, ${told.replays} replays\n`,
  )
  // Each kill left at least one producer whose job was stored, and who was not told so.
  expect(told.replays).toBeGreaterThanOrEqual(kills)
  expect(told.failures).toBeGreaterThanOrEqual(kills)
}

/** Sends one job after the other, each until it is accepted. */
async function produce(name: string, gateway: () => RunningGateway, told: Told, stop: AbortSignal): Promise<void> {
  for (let n = 0; !stop.aborted; n++) {
    const key = `${name}-${n}`
    for (let id: string | undefined; id === undefined; ) {
      id = await attempt(gateway().url, key, told)
      if (id === undefined) await sleep(RETRY_MS)
      else told.ids.set(key, id)
    }
  }
}

async function attempt(url: string, key: string, told: Told): Promise<string | undefined> {
  const response = await post(url, 'jobs', { key, mark: MARK }, { 'idempotency-key': key }).catch(() => undefined)
  if (response?.status !== 202) {
    expect(response?.status ?? 503).toBe(503)
    told.failures += 1
    return undefined
  }
  if (response.headers.get('idempotency-replayed') === 'true') told.replays += 1
  return ((await response.json()) as { id: string }).id
}
