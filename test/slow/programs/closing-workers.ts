import { setTimeout as sleep } from 'node:timers/promises'
import { ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { startRedis } from '../../../workers/services/redis.ts'
import { type RedisProxy, startProxy } from '../../support/proxy.ts'

/**
 * Closes workers on one event loop, each at a random moment of a connection of its own that is cut, silent, slow or
 * refused, and tells its parent which rejections no one handled, and under which fault a close did not end.
 * Arguments: how many workers, and the seed.
 */
const [count, seed] = process.argv.slice(2).map(Number) as [number, number]
/** More would keep the event loop so busy that few have subscribed when their fault comes. */
const AT_ONCE = 12
const FAULT_WITHIN_MS = 150
/** By then it has subscribed to what wakes it, too. */
const SETTLED_MS = 500
/** What a close promises, and some time for a busy machine: docs/high-availability.md. */
const CLOSES_WITHIN_MS = 30_000

let state = seed
/** mulberry32 */
function random(): number {
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
}

const FAULTS: readonly (readonly [name: string, begin: (proxy: RedisProxy) => unknown])[] = [
  ['none', () => {}],
  ['cut', (proxy) => proxy.cut()],
  [
    'cut again and again',
    async (proxy) => {
      proxy.latency(random() * 10)
      for (let cuts = 0; cuts < 4; cuts++) {
        proxy.cut()
        await sleep(random() * 40)
      }
    },
  ],
  [
    'slow and cut',
    (proxy) => {
      proxy.latency(20 + random() * 60)
      proxy.cut()
    },
  ],
  ['slow', (proxy) => proxy.latency(random() * 100)],
  ['in pieces', (proxy) => proxy.slice(1000 + Math.floor(random() * 3000))],
  ['silent', (proxy) => proxy.silence()],
  ['replies silent', (proxy) => proxy.silence('replies')],
  [
    'silent, then cut',
    async (proxy) => {
      proxy.silence()
      await sleep(random() * 40)
      proxy.cut()
    },
  ],
  [
    'refused for a while',
    async (proxy) => {
      await proxy.refuse()
      await sleep(random() * 60)
      await proxy.resume()
    },
  ],
]

const unhandled: string[] = []
process.on('unhandledRejection', (reason) => {
  unhandled.push(reason instanceof Error ? (reason.stack ?? reason.message) : String(reason))
})
const hung: string[] = []

function heal(proxy: RedisProxy): void {
  proxy.latency(0)
  proxy.slice(0)
  proxy.cut()
}

async function closeOne(i: number, proxy: RedisProxy): Promise<void> {
  const [name, begin] = FAULTS[i % FAULTS.length] as (typeof FAULTS)[number]
  const { host, port } = proxy
  const connection = { host, port, maxRetriesPerRequest: null, retryStrategy: () => 1 + random() * 20 }
  const worker = new ShapedWorker('closes', () => sleep(random() * 5), { connection, concurrency: 2 })
  worker.on('error', () => {})
  // Some faults come while it connects, some later.
  if (random() < 0.7) await worker.waitUntilReady().then(() => sleep(random() * SETTLED_MS))
  const faultMs = random() * FAULT_WITHIN_MS
  const fault = sleep(faultMs).then(() => begin(proxy))
  await sleep(faultMs + (random() * 1.5 - 0.3) * FAULT_WITHIN_MS)
  const late = setTimeout(() => {
    hung.push(name)
    heal(proxy)
  }, CLOSES_WITHIN_MS)
  await worker.close()
  clearTimeout(late)
  await fault
  heal(proxy)
}

const service = await startRedis({ ignoreGiven: true })
const { host, port } = service
const queue = new ShapedQueue('closes', { connection: { host, port }, shape: { rate: '1000/s', burst: 50 } })
let next = 0
const closeOthers = async () => {
  const proxy = await startProxy(service.url)
  while (next < count) {
    if (next % 10 === 0) await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'job', data: {} })))
    await closeOne(next++, proxy)
  }
  await proxy.stop()
}
await Promise.all(Array.from({ length: Math.min(AT_ONCE, count) }, closeOthers))
await queue.close()
await service.stop()
process.send?.({ type: 'found', unhandled, hung })
process.disconnect?.()
