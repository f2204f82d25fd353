import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { quantile } from '../../bench/harness/statistics.ts'
import { ANY, startGateway } from '../../packages/gateway/test/program/support.ts'
import { ATTACKS } from '../../packages/gateway/test/support/attacks.ts'
import { startCallers } from '../../packages/gateway/test/support/callers.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'

const WATCHED = new URL('../../packages/gateway/test/programs/watched-gateway.ts', import.meta.url)
const ATTACKER = new URL('../../packages/gateway/test/programs/attacker.ts', import.meta.url)
const KEYS_TIMEOUT_MS = 3_600_000
const MEBIBYTE = 2 ** 20

/** How many distinct keys ask; GATEWAY_KEYS. */
const KEYS = Number(process.env.GATEWAY_KEYS ?? 1_000_000)
/** Of how many keys the requests are that they are compared with. */
const FEW_KEYS = 100
/** How long callers are watched for a figure; GATEWAY_SECONDS. */
const SECONDS = Number(process.env.GATEWAY_SECONDS ?? 5)
/** These take what they send, up to 100 MiB/s of it: it has to be received before it can be refused. */
const BY_VOLUME: readonly string[] = ['a body over the limit', 'a body without end']
/** What these may take of others. */
const MOST_BY_VOLUME = 3
/** So often each attack is compared with the time before it: what else the machine does is as long in either. */
const ROUNDS = 5
/** What the p99 of others may grow by; GATEWAY_MOST_TIMES_SLOWER, for machines that have other things to do. */
const MOST_TIMES_SLOWER = Number(process.env.GATEWAY_MOST_TIMES_SLOWER ?? 1.2)

const redis = useRedis(import.meta.url)
const processes = useProcesses()

interface Row {
  readonly name: string
  readonly quietP99Ms: number
  readonly p99Ms: number
  readonly ratio: number
  readonly grownMiB: number
}

interface MemoryMessage {
  readonly type: 'memory'
  readonly bytes: number
}

type AttackerMessage =
  | { readonly type: 'ready' }
  | { readonly type: 'done'; readonly counts: readonly (readonly [string, number])[] }

async function start() {
  const limits = [{ name: 'addresses', per: 'address', rate: '1000000/h', burst: 1_000_000, maxKeys: 10_000 }]
  const config = { queues: { jobs: ANY }, limits, shedding: { maxRequestsInFlight: 200 } }
  const env = {
    ...{ REDIS_URL: redis.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, LOG_LEVEL: 'info' },
    ...{ REQUEST_TIMEOUT_MS: '1000', TRUST_PROXY: 'loopback' },
  }
  const gateway = await startGateway(processes, config, env, WATCHED)
  const memory = async () => {
    const before = gateway.program.messages.length
    gateway.program.send('memory')
    await expect.poll(() => gateway.program.messages.length, { timeout: 20_000 }).toBeGreaterThan(before)
    return (gateway.program.messages.at(-1) as unknown as MemoryMessage).bytes
  }
  return { ...gateway, memory }
}

/** What callers see for a while. */
async function watch(url: string) {
  const callers = startCallers(url)
  await sleep(SECONDS * 1000)
  const seen = await callers.stop()
  expect(seen.statuses.filter((status) => status !== 202)).toEqual([])
  return seen
}

async function whileAttacked(url: string, attack: string) {
  const attacker = processes.fork<AttackerMessage>(ATTACKER, { args: [attack, url] })
  await attacker.waitFor('ready')
  const seen = await watch(url)
  await attacker.kill()
  return seen
}

test('attacks change neither the response time of others nor the memory', async () => {
  const { program, url, memory } = await start()
  await watch(url)
  const before = await memory()
  const rows: Row[] = []
  for (const [name] of ATTACKS) {
    const quietMs: number[] = []
    const attackedMs: number[] = []
    for (let i = 0; i < ROUNDS; i++) {
      quietMs.push(...(await watch(url)).timesMs)
      attackedMs.push(...(await whileAttacked(url, name)).timesMs)
    }
    const grownMiB = ((await memory()) - before) / MEBIBYTE
    const [quietP99Ms, p99Ms] = [quantile(quietMs, 0.99), quantile(attackedMs, 0.99)]
    rows.push({ name, quietP99Ms, p99Ms, ratio: p99Ms / quietP99Ms, grownMiB })
  }
  console.table(rows)
  await program.kill('SIGTERM')
  expect(rows.filter(({ grownMiB }) => grownMiB > 64)).toEqual([])
  const most = (name: string) => Math.max(MOST_TIMES_SLOWER, BY_VOLUME.includes(name) ? MOST_BY_VOLUME : 0)
  expect(rows.filter(({ name, ratio }) => ratio > most(name))).toEqual([])
})

/** So many requests of so many keys, as fast as they are answered, and what callers saw meanwhile. */
async function whileAsked(url: string, times: number, keys: number) {
  const attacker = processes.fork<AttackerMessage>(ATTACKER, { args: ['keys', url, String(times), String(keys)] })
  await attacker.waitFor('ready')
  const callers = startCallers(url)
  const { counts } = await attacker.waitFor('done', undefined, KEYS_TIMEOUT_MS)
  const { statuses, p99Ms } = await callers.stop()
  await attacker.kill()
  expect(statuses.filter((status) => status !== 202)).toEqual([])
  expect(counts.reduce((sum, [, count]) => sum + count, 0)).toBe(times)
  return p99Ms
}

test(
  `${KEYS} distinct keys do not change the memory, and the response time of others no more than the same requests of few keys`,
  async () => {
    const { program, url, memory } = await start()
    await whileAsked(url, KEYS / 10, FEW_KEYS)
    const before = await memory()
    const fewP99Ms = await whileAsked(url, KEYS / 5, FEW_KEYS)
    const p99Ms = await whileAsked(url, KEYS, KEYS)
    const grownMiB = ((await memory()) - before) / MEBIBYTE
    console.table([{ keys: KEYS, fewP99Ms, p99Ms, ratio: p99Ms / fewP99Ms, grownMiB }])
    await program.kill('SIGTERM')
    expect(grownMiB).toBeLessThan(64)
    expect(p99Ms / fewP99Ms).toBeLessThan(MOST_TIMES_SLOWER)
  },
  KEYS_TIMEOUT_MS,
)
