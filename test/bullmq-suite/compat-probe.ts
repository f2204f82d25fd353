import { createHash } from 'node:crypto'
import { createRedisBackend, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { createShapedBackend, QueueFullError, ShapedQueue } from '../../src/index.ts'
import { captureBullmqScripts, checkBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { VERSION } from '../../src/version.ts'
import { dumpKeys, keyDifferences } from './compat-keys.ts'
import { playScenario } from './compat-scenario.ts'

/** What the probe prints as its last line. */
export interface ProbeResult {
  bullmq: string
  verdict: 'known' | 'unknown' | 'refused'
  /** Why it is unknown or refused. */
  message: string
  /** What is not as it has to be. */
  faults: string[]
}

/** Two queues, one after the other at the same frozen time: the keys that BullMQ leaves must be the same. */
async function compareWithStock(redis: Redis, url: string): Promise<string[]> {
  const systemNow = Date.now
  const startMs = systemNow()
  const play = async (prefix: string, backend: typeof createRedisBackend) => {
    const clock = { nowMs: startMs }
    Date.now = () => clock.nowMs
    const order = await playScenario({ connection: { url }, prefix, clock }, backend as never)
    return { order: order.join(' '), keys: await dumpKeys(redis, prefix) }
  }
  try {
    const stock = await play('stock', createRedisBackend)
    const ours = await play('sluice', createShapedBackend as never)
    const order = stock.order === ours.order ? [] : [`ran ${ours.order}, stock runs ${stock.order}`]
    return [...order, ...keyDifferences(stock.keys, ours.keys)]
  } finally {
    Date.now = systemNow
  }
}

/** Every composed script has run, and Redis takes the text of those that only workers of ours call. */
async function findUnused(redis: Redis, scripts: ScriptSet): Promise<string[]> {
  const faults: string[] = []
  for (const name of scripts.texts().keys()) {
    const lua = scripts.textSent(name)
    const runs = ['add', 'add-flow', 'exchange'].includes(name)
    const sha = createHash('sha1').update(lua).digest('hex')
    const [ran] = (await redis.script('EXISTS', sha)) as number[]
    if (runs && ran !== 1) faults.push(`${name} was not run`)
    const loaded = await redis.script('LOAD', lua).catch((error: Error) => error.message)
    if (loaded !== sha) faults.push(`${name} does not compile: ${loaded}`)
  }
  return faults
}

/** With a shape, the bound and the gate must be there. */
async function findUnshaped(url: string): Promise<string[]> {
  const faults: string[] = []
  const opts = { connection: { url }, prefix: 'shaped' }
  const queue = new ShapedQueue('probe', { ...opts, shape: { rate: '1/min', capacity: 2 } })
  const worker = new Worker('probe', null, { ...opts, autorun: false }, createShapedBackend)
  try {
    await queue.add('one', {})
    await queue.add('two', {})
    const refusal: unknown = await queue.add('three', {}).catch((error: unknown) => error)
    if (!(refusal instanceof QueueFullError)) faults.push('a job over the capacity was not refused')
    const first = await worker.getNextJob('token', { block: false })
    if (!first) faults.push('the first job was not started')
    const next = await first?.moveToCompleted(null, 'token', true)
    if (next?.[0]) faults.push('a job was started before its slot by the end of another')
    if (await worker.getNextJob('token', { block: false })) faults.push('a job was started before its slot')
  } finally {
    await Promise.all([queue.close(), worker.close()])
  }
  return faults
}

async function probe(url: string): Promise<ProbeResult> {
  const bullmq = captureBullmqScripts()
  const result = { bullmq: bullmq.version, message: '', faults: [] }
  let warning: string | undefined
  try {
    warning = checkBullmqScripts(bullmq)
  } catch (error) {
    return { ...result, verdict: 'refused', message: (error as Error).message }
  }
  const redis = new Redis(url)
  try {
    const faults = await compareWithStock(redis, url)
    faults.push(...(await findUnshaped(url)))
    faults.push(...(await findUnused(redis, new ScriptSet(bullmq, VERSION))))
    return { ...result, verdict: warning ? 'unknown' : 'known', message: warning ?? '', faults }
  } finally {
    redis.disconnect()
  }
}

console.log(JSON.stringify(await probe(process.argv[2] as string)))
