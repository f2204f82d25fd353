import { readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { cpus, loadavg, platform, release } from 'node:os'
import { dirname, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import Table from 'cli-table3'
import { Argument, Command } from 'commander'
import { Redis } from 'ioredis'
import { startRedis } from '../workers/services/redis.ts'
import { calls } from './calls.ts'
import { cancel } from './cancel.ts'
import { changes } from './changes.ts'
import { feedback } from './feedback.ts'
import { gateway } from './gateway.ts'
import { groups } from './groups.ts'
import { type Bench, connectionTo, type Figure, type Row } from './harness/figure.ts'
import { Processes } from './harness/processes.ts'
import { hints } from './hints.ts'
import { importing } from './import.ts'
import { instructions } from './instructions.ts'
import { limits } from './limits.ts'
import { memory } from './memory.ts'
import { pacing } from './pacing.ts'
import { scale } from './scale.ts'
import { schedules } from './schedules.ts'
import { scripts } from './scripts.ts'
import { sharding } from './sharding.ts'
import { simulate } from './simulate.ts'
import { throughput } from './throughput.ts'
import { views } from './views.ts'

const FIGURES: readonly Figure[] = [
  ...[...pacing, ...throughput, importing, calls, ...changes, ...instructions],
  ...[...limits, ...feedback, simulate, cancel, hints, views, ...groups, ...schedules, memory],
  ...[sharding, ...scale, scripts, ...gateway],
]
/** `limits` stands for all figures whose names begin with `limits-`, too. */
const subjectOf = ({ name }: Figure): string => name.replace(/-.*/, '')
const NAMES = [...new Set(FIGURES.flatMap((figure) => [subjectOf(figure), figure.name]))]

const HEADINGS = ['', 'asked', 'reached', 'ok', "BullMQ's own"]
/** Peers, by the versions that are installed. */
const LIBRARIES = ['bullmq', 'ioredis', 'rate-limiter-flexible', '@upstash/ratelimit', 'bottleneck']

interface Options {
  readonly only: readonly string[]
  readonly quick?: boolean
  readonly json?: string
  readonly profile?: string
}

const AFTER = `
Starts a Redis and worker processes of its own, and stops them. Figures are wall-clock measurements: run them on a quiet
machine, or count instructions, which are the same on a busy one. The exit code tells whether everything could be measured, not whether every figure was reached.

Examples:
  npm run bench
  npm run bench limits
  npm run bench scale-waiting scale-workers
  npm run bench scale -- --quick
  npm run bench -- drain rate --json figures.json`

function readOptions(): Options {
  const command = new Command('npm run bench --')
    .description('Measures what Sluice promises, side by side with BullMQ and with other rate limiters.')
    .addArgument(new Argument('[figures...]', 'measure only these').choices(NAMES))
    .option('--quick', 'shorter and fewer runs, a few minutes: to see that everything works')
    .option('--json <file>', 'where to write everything that was measured (default: bench/results/<time>.json)')
    .option('--profile <folder>', 'write a CPU profile of each worker process')
    .addHelpText('after', AFTER)
    .parse()
  return { ...command.opts<Omit<Options, 'only'>>(), only: command.processedArgs[0] as readonly string[] }
}

async function describeMachine(client: Redis) {
  const processors = cpus()
  const versionOf = (name: string) => {
    const file = new URL(`../node_modules/${name}/package.json`, import.meta.url)
    return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
  }
  return {
    cpus: `${processors.length} × ${processors[0]?.model.trim() || 'unknown processor'}`,
    platform: `${platform()} ${release()}`,
    node: process.version,
    redis: /^(?:valkey|redis)_version:(\S+)/m.exec(await client.info('server'))?.[1] ?? 'unknown',
    ...Object.fromEntries(LIBRARIES.map((name) => [name, versionOf(name)])),
    /** Load average of the last minute, at the start: if it is well above 0, other programs were running. */
    load: loadavg()[0] ?? 0,
  }
}

/** What a figure found; one that fails is a row that says so, and the others are measured with new processes. */
async function rowsOf(bench: Bench, { mostMinutes = 20, ...figure }: Figure): Promise<readonly Row[]> {
  const stop = new AbortController()
  const tooLong = sleep(mostMinutes * 60_000, undefined, { signal: stop.signal }).then(
    () => Promise.reject(new Error(`it took longer than ${mostMinutes} minutes`)),
    () => [],
  )
  try {
    return await Promise.race([figure.run(bench), tooLong])
  } catch (error) {
    process.exitCode = 1
    await bench.processes.stop()
    await bench.client.flushall()
    return [{ setup: 'not measured', reached: String((error as Error).message), ok: false, values: {} }]
  } finally {
    stop.abort()
  }
}

const inWords = (ok: Row['ok']): string => (ok === true ? 'yes' : ok === false ? 'NO' : (ok ?? ''))

function tableOf(rows: readonly Row[], { headings = HEADINGS }: Figure): string {
  const chars = { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' }
  const table = new Table({ head: [...headings], chars, style: { head: [], border: [], compact: true } })
  for (const { setup, cells, asked = '', reached, ok, beside = '' } of rows)
    table.push([setup, ...(cells ?? [asked, reached, inWords(ok), beside].slice(0, headings.length - 1))])
  return table.toString()
}

async function measure(bench: Bench, figure: Figure) {
  const startedMs = performance.now()
  const rows = await rowsOf(bench, figure)
  const seconds = Math.round((performance.now() - startedMs) / 100) / 10
  const { name, title } = figure
  console.log(`\n${name}: ${title} [${seconds} s]\n${tableOf(rows, figure)}`)
  return { figure: name, title, seconds, rows }
}

type Measured = Awaited<ReturnType<typeof measure>>

function verdict(measured: readonly Measured[]): string {
  const list = (heading: string, verdict: Row['ok']) => {
    const found = measured.flatMap(({ figure, rows }) =>
      rows.filter(({ ok }) => ok === verdict).map(({ setup }) => `\n  ${figure}: ${setup}`),
    )
    return found.length === 0 ? [] : [`${heading}:${found.join('')}`]
  }
  const open = list('Neither reached nor missed, as the required value is within their spread', 'within its spread')
  return [...list('Missed', false), ...open].join('\n') || 'Every figure was reached.'
}

async function run({ only, quick = false, json, profile }: Options): Promise<void> {
  const at = new Date()
  const redis = await startRedis({ ignoreGiven: true })
  const client = new Redis(connectionTo(redis))
  const processes = new Processes(profile ? ['--cpu-prof', `--cpu-prof-dir=${resolve(profile)}`] : [])
  try {
    const machine = await describeMachine(client)
    const words = Object.entries(machine).map((entry) => entry.join(' '))
    console.log(`${redis.source}\n${words.join(' · ')}`)
    const bench: Bench = { redis: { host: redis.host, port: redis.port }, client, processes, quick }
    const isAsked = (figure: Figure) =>
      only.length === 0 || [figure.name, subjectOf(figure)].some((one) => only.includes(one))
    const figures: Measured[] = []
    for (const figure of FIGURES.filter(isAsked)) figures.push(await measure(bench, figure))
    const name = at.toISOString().replace(/[:.]/g, '-')
    const file = resolve(json ?? fileURLToPath(new URL(`results/${name}.json`, import.meta.url)))
    await mkdir(dirname(file), { recursive: true })
    await writeFile(file, `${JSON.stringify({ at, quick, machine, figures }, null, 2)}\n`)
    console.log(`\n${verdict(figures)}\n${file}`)
  } finally {
    await processes.stop()
    client.disconnect()
    await redis.stop()
  }
}

await run(readOptions())
