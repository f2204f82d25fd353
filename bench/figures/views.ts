import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Redis } from 'ioredis'
import { ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { type Bench, connectionTo, type Figure, type Row } from '../figure.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'

const QUEUES = 10_000
const QUICK_QUEUES = 1000
const DEEP_JOBS = 1_000_000
const QUICK_DEEP_JOBS = 100_000
const COPIES_AT_ONCE = 2000
const ASKED_MS = 2000
const ASKED_MB = 150
const MAIN = fileURLToPath(new URL('../../dist/cli.js', import.meta.url))

/** On exit, the process reports its peak memory and its CPU time. */
const REPORTS_COST = `data:text/javascript,${encodeURIComponent(`
  import { readFileSync } from 'node:fs'
  process.on('exit', () => {
    const [, kB] = /VmHWM:\\s*(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8')) ?? []
    const { user, system } = process.cpuUsage()
    process.stderr.write('peak ' + kB + ' busy ' + (user + system) + '\\n')
  })
`)}`

/** The cost of a process over its lifetime. */
interface Cost {
  readonly peakMb: number
  readonly busyMs: number
}

interface Reached {
  readonly ms: number
  readonly bytes: number
}

/** Creates many queues as copies of one that has run jobs, each with its own keys. */
async function manyQueues(bench: Bench, count: number): Promise<void> {
  const { client } = bench
  const queue = await makeQueue(bench, 'sluice', 'many', { rate: '100/s', burst: 5, concurrency: 10 })
  await addJobs(queue, 200)
  const worker = new ShapedWorker(queue.name, async () => {}, { connection: connectionTo(bench.redis), concurrency: 5 })
  await new Promise<void>((resolve) => {
    let done = 0
    worker.on('completed', () => {
      done += 1
      if (done === 100) resolve()
    })
  })
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

async function forget(client: Redis): Promise<void> {
  await client.flushall()
}

/** The command line with these arguments; its peak memory is known once it has ended. */
class Command {
  readonly child: ChildProcess
  #stderr = ''

  constructor({ redis }: Bench, args: readonly string[]) {
    const all = ['--import', REPORTS_COST, MAIN, ...args, '--redis-url', `redis://${redis.host}:${redis.port}`]
    this.child = spawn(process.execPath, all, { stdio: ['ignore', 'pipe', 'pipe'] })
    this.child.stderr?.on('data', (chunk) => {
      this.#stderr += chunk
    })
  }

  /** The first matching line of its output. */
  async line(pattern: RegExp): Promise<string> {
    if (!this.child.stdout) throw new Error('no stdout')
    for await (const line of createInterface({ input: this.child.stdout })) {
      const found = pattern.exec(line)
      if (found) return found[0]
    }
    throw new Error(`the process ended without a matching line: ${this.#stderr}`)
  }

  async bytes(): Promise<number> {
    let bytes = 0
    for await (const chunk of this.child.stdout ?? []) bytes += (chunk as Buffer).length
    return bytes
  }

  async cost(): Promise<Cost> {
    if (this.child.exitCode === null) await once(this.child, 'close')
    const [, kB, busyUs] = /peak (\d+) busy (\d+)/.exec(this.#stderr) ?? []
    if (kB === undefined) throw new Error(`the process reported no cost: ${this.#stderr}`)
    return { peakMb: Math.round(Number(kB) / 1024), busyMs: Math.round(Number(busyUs) / 1000) }
  }
}

function rowOf(setup: string, { ms, bytes }: Reached, { peakMb, busyMs }: Cost): Row {
  const ok = ms <= ASKED_MS && peakMb <= ASKED_MB
  const reached = `${Math.round(ms)} ms, ${peakMb} MB, ${Math.ceil(bytes / 1024)} KB (process busy ${busyMs} ms)`
  return { setup, asked: `<= ${ASKED_MS} ms, ${ASKED_MB} MB`, reached, ok, values: { ms, bytes, peakMb, busyMs } }
}

/** Runs a command from start to end. */
async function commandRow(bench: Bench, ...args: string[]): Promise<Row> {
  const startedMs = performance.now()
  const command = new Command(bench, args)
  const bytes = await command.bytes()
  const cost = await command.cost()
  return rowOf(`sluice ${args.join(' ')}`, { ms: performance.now() - startedMs, bytes }, cost)
}

async function answerOf(url: string): Promise<Reached> {
  const startedMs = performance.now()
  const answer = await fetch(url)
  let bytes = 0
  for await (const chunk of answer.body ?? []) bytes += chunk.length
  if (!answer.ok) throw new Error(`${url} was answered ${answer.status}`)
  return { ms: performance.now() - startedMs, bytes }
}

async function metricsRows(bench: Bench, ...args: string[]): Promise<Row[]> {
  const command = new Command(bench, ['metrics', '--port', '0', ...args])
  const url = await command.line(/http\S+/)
  const [first, second] = [await answerOf(url), await answerOf(url)]
  command.child.kill('SIGTERM')
  const cost = await command.cost()
  const what = ['scrape', ...args].join(' ')
  return [rowOf(`${what}, the first`, first, cost), rowOf(`${what}, the second`, second, cost)]
}

/** Reads the first event of a stream, timed from the request. */
async function firstEvent(url: string): Promise<Reached> {
  const startedMs = performance.now()
  const stop = new AbortController()
  const answer = await fetch(url, { signal: stop.signal })
  let text = ''
  for await (const chunk of answer.body ?? []) {
    text += Buffer.from(chunk).toString('latin1')
    if (/data: [^\n]*\n/.test(text)) break
  }
  stop.abort()
  return { ms: performance.now() - startedMs, bytes: text.length }
}

async function dashboardRows(bench: Bench): Promise<Row[]> {
  const command = new Command(bench, ['dashboard', '--port', '0'])
  const url = await command.line(/http:[^"\s]+/)
  const page = await answerOf(`${url}/api/fleet`)
  const sorted = await answerOf(`${url}/api/fleet?sort=depth&start=200`)
  const event = await firstEvent(`${url}/api/events`)
  command.child.kill('SIGTERM')
  const cost = await command.cost()
  return [
    rowOf('dashboard: a page of all queues', page, cost),
    rowOf('dashboard: another page, by depth', sorted, cost),
    rowOf('dashboard: an event of its stream', event, cost),
  ]
}

/** How long Redis is busy with one command of an explanation, for a job in the middle of a long list. */
async function explainRow(bench: Bench, jobs: number): Promise<Row> {
  const { client } = bench
  const queue = await makeQueue(bench, 'sluice', 'deep', { rate: '1/s' })
  const job = await queue.add('job', {})
  const batch = 10_000
  for (let added = 0; added < jobs; added += batch) {
    const ids = Array.from({ length: batch }, (_, i) => `x${added + i}`)
    await client[added < jobs / 2 ? 'lpush' : 'rpush'](queue.toKey('wait'), ...ids)
  }
  await client.config('SET', 'slowlog-log-slower-than', 0)
  await client.config('SET', 'slowlog-max-len', 1000)
  await client.slowlog('RESET')
  const inspector = new Inspector({ connection: connectionTo(bench.redis) })
  const startedMs = performance.now()
  const explained = await inspector.explain(queue.name, job.id as string)
  const ms = performance.now() - startedMs
  const entries = (await client.slowlog('GET', 1000)) as [number, number, number, string[]][]
  const longestUs = Math.max(...entries.filter(([, , , [name]]) => name !== 'slowlog').map(([, , us]) => us))
  await inspector.close()
  await removeQueue(queue)
  return {
    setup: `explain of a job in the middle of ${jobs} others`,
    asked: 'a command <= 2 ms',
    reached: `${Math.round(ms)} ms, the longest command ${(longestUs / 1000).toFixed(2)} ms, ahead ${explained?.ahead}`,
    ok: longestUs <= 2000,
    values: { ms, longestUs, ahead: explained?.ahead },
  }
}

export const views: Figure = {
  name: 'views',
  title: `Views of ${QUEUES} queues, each in its own process: time, peak memory, size of the output`,
  headings: ['', 'asked', 'reached', 'ok'],
  run: async (bench) => {
    await manyQueues(bench, bench.quick ? QUICK_QUEUES : QUEUES)
    const rows = [
      await commandRow(bench, 'status'),
      await commandRow(bench, 'status', '--json'),
      await commandRow(bench, 'top', '--json', '--count', '1'),
      ...(await metricsRows(bench)),
      ...(await dashboardRows(bench)),
    ]
    await forget(bench.client)
    return [...rows, await explainRow(bench, bench.quick ? QUICK_DEEP_JOBS : DEEP_JOBS)]
  },
}
