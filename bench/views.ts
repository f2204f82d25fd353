import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import { addJobs, completions, makeQueue, makeWorker } from './harness/queues.ts'

const QUEUES = 10_000
const QUICK_QUEUES = 1000
const COPIES_AT_ONCE = 2000
const ASKED_MS = 2000
const ASKED_MB = 150
const MAIN = fileURLToPath(new URL('../packages/cli/dist/main.js', import.meta.url))

/** On exit, the process reports its peak memory and its CPU time. */
const REPORTS_COST = `data:text/javascript,${encodeURIComponent(`
  import { readFileSync } from 'node:fs'
  process.on('exit', () => {
    const [, kB] = /VmHWM:\\s*(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8')) ?? []
    const { user, system } = process.cpuUsage()
    process.stderr.write('peak ' + kB + ' busy ' + (user + system) + '\\n')
  })
`)}`

/** Creates many queues as copies of one that has run jobs, each with its own keys. */
async function manyQueues(bench: Bench, count: number): Promise<void> {
  const { client, redis } = bench
  const queue = await makeQueue(bench, 'sluice', 'many', { rate: '100/s', burst: 5, concurrency: 10 })
  await addJobs(queue, 200)
  const worker = makeWorker({ system: 'sluice', queue: queue.name, redis, concurrency: 5 })
  await completions(worker, 100)
  await worker.close()
  const base = queue.toKey('')
  const keys = await client.keys(`${base}*`)
  for (let i = 0, batch = client.pipeline(); i < count; i++) {
    const name = `many-${String(i).padStart(5, '0')}`
    for (const key of keys) batch.copy(key, `bull:${name}:${key.slice(base.length)}`)
    batch.sadd('bull:shaped-queues', name)
    if (batch.length >= COPIES_AT_ONCE || i === count - 1) {
      await batch.exec()
      batch = client.pipeline()
    }
  }
  await queue.close()
}

/** Until all has come, or what is enough. */
async function read(chunks: AsyncIterable<Uint8Array> | null, enough?: RegExp): Promise<number> {
  let [bytes, text] = [0, '']
  for await (const chunk of chunks ?? []) {
    bytes += chunk.length
    text += Buffer.from(chunk).toString('latin1')
    if (enough?.test(text)) break
  }
  return bytes
}

/** A command, and what is asked of its server, which prints its URL. Default: what it prints. */
interface Case {
  readonly args: readonly string[]
  readonly requests?: readonly { readonly setup: string; readonly path: string; readonly enough?: RegExp }[]
}

const CASES: readonly Case[] = [
  { args: ['status'] },
  { args: ['status', '--json'] },
  { args: ['top', '--json', '--count', '1'] },
  {
    args: ['metrics', '--port', '0'],
    requests: ['first', 'second'].map((which) => ({ setup: `scrape, the ${which}`, path: '' })),
  },
  {
    args: ['dashboard', '--port', '0'],
    requests: [
      { setup: 'dashboard: a page of all queues', path: '/api/fleet' },
      { setup: 'dashboard: another page, by depth', path: '/api/fleet?sort=depth&start=200' },
      { setup: 'dashboard: an event of its stream', path: '/api/events', enough: /data: [^\n]*\n/ },
    ],
  },
]

async function urlIn(output: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: output })) {
    const url = /http:[^"\s]+/.exec(line)?.[0]
    if (url) return url
  }
  throw new Error('expected a URL, and the process ended')
}

interface Found {
  readonly setup: string
  readonly ms: number
  readonly bytes: number
}

async function found(
  output: NodeJS.ReadableStream & AsyncIterable<Buffer>,
  { args, requests }: Case,
): Promise<Found[]> {
  const startedMs = performance.now()
  if (!requests) {
    const bytes = await read(output)
    return [{ setup: `sluice ${args.join(' ')}`, ms: performance.now() - startedMs, bytes }]
  }
  const url = await urlIn(output)
  const all: Found[] = []
  for (const { setup, path, enough } of requests) {
    const sentMs = performance.now()
    const answer = await fetch(`${url}${path}`)
    const bytes = await read(answer.body, enough)
    if (!answer.ok) throw new Error(`${path} was answered ${answer.status}`)
    all.push({ setup, ms: performance.now() - sentMs, bytes })
  }
  return all
}

/** Runs the command line. Its peak memory and its CPU time are known once it has ended. */
async function commandRows({ redis }: Bench, one: Case): Promise<Row[]> {
  const args = ['--import', REPORTS_COST, MAIN, ...one.args, '--redis-url', `redis://${redis.host}:${redis.port}`]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let stderr = ''
  child.stderr.on('data', (chunk) => {
    stderr += chunk
  })
  const closed = once(child, 'close')
  const all = await found(child.stdout, one)
  if (one.requests) child.kill('SIGTERM')
  await closed
  const [, kB, busyUs] = /peak (\d+) busy (\d+)/.exec(stderr) ?? []
  if (kB === undefined) throw new Error(`the process reported no cost: ${stderr}`)
  const [peakMb, busyMs] = [Math.round(Number(kB) / 1024), Math.round(Number(busyUs) / 1000)]
  return all.map(({ setup, ms, bytes }) => {
    const reached = `${Math.round(ms)} ms, ${peakMb} MB, ${Math.ceil(bytes / 1024)} KB (process busy ${busyMs} ms)`
    const ok = ms <= ASKED_MS && peakMb <= ASKED_MB
    return { setup, asked: `<= ${ASKED_MS} ms, ${ASKED_MB} MB`, reached, ok, values: { ms, bytes, peakMb, busyMs } }
  })
}

export const views: Figure = {
  name: 'views',
  title: `Views of ${QUEUES} queues, each in its own process: time, peak memory, size of the output`,
  headings: ['', 'asked', 'reached', 'ok'],
  run: async (bench) => {
    await bench.client.flushall()
    await manyQueues(bench, bench.quick ? QUICK_QUEUES : QUEUES)
    return inTurn(CASES, (one) => commandRows(bench, one))
  },
}
