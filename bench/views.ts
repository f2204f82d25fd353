import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { Inspector } from 'sluice/inspect'
import { type Bench, connectionTo, type Figure, type Row } from './harness/figure.ts'
import { addJobs, completions, makeQueue, makeWorker, removeQueue } from './harness/queues.ts'

const QUEUES = 10_000
const QUICK_QUEUES = 1000
const COPIES_AT_ONCE = 2000
const ASKED_MS = 2000
const ASKED_MB = 150
const MAIN = fileURLToPath(new URL('../dist/cli.js', import.meta.url))

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

interface Reached {
  readonly setup: string
  readonly ms: number
  readonly bytes: number
}

/** Until all has come, or what is enough. */
async function read(chunks: AsyncIterable<Uint8Array> | null, enough = (_text: string) => false): Promise<number> {
  let [bytes, text] = [0, '']
  for await (const chunk of chunks ?? []) {
    bytes += chunk.length
    text += Buffer.from(chunk).toString('latin1')
    if (enough(text)) break
  }
  return bytes
}

/**
 * Runs the command line, and looks at what it prints or serves.
 * @returns rows with its peak memory and its CPU time, which are known once it has ended
 */
async function commandRows(
  { redis }: Bench,
  args: readonly string[],
  look: (output: NodeJS.ReadableStream & AsyncIterable<Buffer>, kill: () => void) => Promise<Reached[]>,
): Promise<Row[]> {
  const all = ['--import', REPORTS_COST, MAIN, ...args, '--redis-url', `redis://${redis.host}:${redis.port}`]
  const child = spawn(process.execPath, all, { stdio: ['ignore', 'pipe', 'pipe'] })
  let stderr = ''
  child.stderr.on('data', (chunk) => {
    stderr += chunk
  })
  const closed = once(child, 'close')
  const found = await look(child.stdout, () => child.kill('SIGTERM'))
  await closed
  const [, kB, busyUs] = /peak (\d+) busy (\d+)/.exec(stderr) ?? []
  if (kB === undefined) throw new Error(`the process reported no cost: ${stderr}`)
  const [peakMb, busyMs] = [Math.round(Number(kB) / 1024), Math.round(Number(busyUs) / 1000)]
  return found.map(({ setup, ms, bytes }) => {
    const size = `${Math.ceil(bytes / 1024)} KB`
    const reached = `${Math.round(ms)} ms, ${peakMb} MB, ${size} (process busy ${busyMs} ms)`
    const ok = ms <= ASKED_MS && peakMb <= ASKED_MB
    return { setup, asked: `<= ${ASKED_MS} ms, ${ASKED_MB} MB`, reached, ok, values: { ms, bytes, peakMb, busyMs } }
  })
}

/** From start to end. */
function printedRows(bench: Bench, ...args: string[]): Promise<Row[]> {
  const startedMs = performance.now()
  return commandRows(bench, args, async (output) => {
    const bytes = await read(output)
    return [{ setup: `sluice ${args.join(' ')}`, ms: performance.now() - startedMs, bytes }]
  })
}

/** What a server answers, which prints its URL. */
function servedRows(
  bench: Bench,
  command: string,
  requests: readonly { readonly setup: string; readonly path: string; readonly enough?: (text: string) => boolean }[],
): Promise<Row[]> {
  return commandRows(bench, [command, '--port', '0'], async (output, kill) => {
    let url: string | undefined
    for await (const line of createInterface({ input: output })) {
      url = /http:[^"\s]+/.exec(line)?.[0]
      if (url) break
    }
    const found: Reached[] = []
    for (const { setup, path, enough } of requests) {
      const startedMs = performance.now()
      const answer = await fetch(`${url}${path}`)
      const bytes = await read(answer.body, enough)
      if (!answer.ok) throw new Error(`${path} was answered ${answer.status}`)
      found.push({ setup, ms: performance.now() - startedMs, bytes })
    }
    kill()
    return found
  })
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
      ...(await printedRows(bench, 'status')),
      ...(await printedRows(bench, 'status', '--json')),
      ...(await printedRows(bench, 'top', '--json', '--count', '1')),
      ...(await servedRows(bench, 'metrics', [
        { setup: 'scrape, the first', path: '' },
        { setup: 'scrape, the second', path: '' },
      ])),
      ...(await servedRows(bench, 'dashboard', [
        { setup: 'dashboard: a page of all queues', path: '/api/fleet' },
        { setup: 'dashboard: another page, by depth', path: '/api/fleet?sort=depth&start=200' },
        {
          setup: 'dashboard: an event of its stream',
          path: '/api/events',
          enough: (text) => /data: [^\n]*\n/.test(text),
        },
      ])),
    ]
    await bench.client.flushall()
    return [...rows, await explainRow(bench, bench.quick ? 100_000 : 1_000_000)]
  },
}
