import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { startRedis } from '../workers/services/redis.ts'
import type { Bench, Figure, Row } from './figure.ts'
import { add } from './figures/add.ts'
import { bound } from './figures/bound.ts'
import { calls } from './figures/calls.ts'
import { drain } from './figures/drain.ts'
import { feedbackBad } from './figures/feedback-bad.ts'
import { feedbackRefused } from './figures/feedback-refused.ts'
import { feedbackStop } from './figures/feedback-stop.ts'
import { gatewayKeys } from './figures/gateway-keys.ts'
import { gatewayLimited } from './figures/gateway-limited.ts'
import { gatewayPost } from './figures/gateway-post.ts'
import { gatewayRefused } from './figures/gateway-refused.ts'
import { groups } from './figures/groups.ts'
import { halted } from './figures/halted.ts'
import { hints } from './figures/hints.ts'
import { idle } from './figures/idle.ts'
import { importing } from './figures/importing.ts'
import { instructions } from './figures/instructions.ts'
import { lateness } from './figures/lateness.ts'
import { limitsChoosing } from './figures/limits-choosing.ts'
import { limitsCombined } from './figures/limits-combined.ts'
import { limitsDecisions } from './figures/limits-decisions.ts'
import { limitsDepartures } from './figures/limits-departures.ts'
import { limitsLocal } from './figures/limits-local.ts'
import { limitsSpread } from './figures/limits-spread.ts'
import { pacedRedis } from './figures/paced-redis.ts'
import { plot } from './figures/plot.ts'
import { rate } from './figures/rate.ts'
import { scaleData } from './figures/scale-data.ts'
import { scaleDay } from './figures/scale-day.ts'
import { scaleDistance } from './figures/scale-distance.ts'
import { scaleQueues } from './figures/scale-queues.ts'
import { scaleScripts } from './figures/scale-scripts.ts'
import { scaleWaiting } from './figures/scale-waiting.ts'
import { scaleWorkers } from './figures/scale-workers.ts'
import { scriptMemory } from './figures/script-memory.ts'
import { sharding } from './figures/sharding.ts'
import { simulate } from './figures/simulate.ts'
import { views } from './figures/views.ts'
import { watched } from './figures/watched.ts'
import { woken } from './figures/woken.ts'
import { Fleet } from './fleet/fleet.ts'
import { describeMachine } from './machine.ts'
import { type BenchOptions, readOptions } from './options.ts'
import { table } from './table.ts'

const GROUPS: Readonly<Record<string, readonly Figure[]>> = {
  queues: [rate, bound, lateness, plot, drain, add, pacedRedis, calls, woken, halted, idle, importing],
  instructions: [instructions, scriptMemory],
  limits: [limitsDecisions, limitsCombined, limitsDepartures, limitsLocal, limitsSpread, limitsChoosing],
  feedback: [feedbackStop, feedbackRefused, feedbackBad],
  simulate: [simulate],
  hints: [hints],
  watched: [watched],
  views: [views],
  groups,
  sharding: [sharding],
  scale: [...scaleWaiting, scaleScripts, scaleQueues, scaleData, scaleWorkers, scaleDistance, scaleDay],
  gateway: [gatewayPost, gatewayLimited, gatewayRefused, gatewayKeys],
}
const FIGURES: readonly Figure[] = Object.values(GROUPS).flat()
const RESULTS = new URL('results/', import.meta.url)

interface Measured {
  readonly figure: string
  readonly title: string
  readonly seconds: number
  readonly rows: readonly Row[]
}

/** What a figure found; one that fails is a row that says so, and the others are measured with new processes. */
async function rowsOf(bench: Bench, figure: Figure): Promise<readonly Row[]> {
  const stop = new AbortController()
  const { mostMinutes = 20 } = figure
  const tooLong = sleep(mostMinutes * 60_000, undefined, { signal: stop.signal }).then(
    () => Promise.reject(new Error(`it took longer than ${mostMinutes} minutes`)),
    () => [],
  )
  try {
    return await Promise.race([figure.run(bench), tooLong])
  } catch (error) {
    process.exitCode = 1
    await bench.fleet.stop()
    await bench.client.flushall()
    return [{ setup: 'not measured', reached: String((error as Error).message), ok: false, values: {} }]
  } finally {
    stop.abort()
  }
}

async function measure(bench: Bench, figures: readonly Figure[]): Promise<Measured[]> {
  const measured: Measured[] = []
  for (const figure of figures) {
    const startedMs = performance.now()
    const rows = await rowsOf(bench, figure)
    const seconds = Math.round((performance.now() - startedMs) / 100) / 10
    measured.push({ figure: figure.name, title: figure.title, seconds, rows })
    console.log(`\n${figure.name}: ${figure.title} [${seconds} s]\n${table(rows, figure)}`)
  }
  return measured
}

function verdict(measured: readonly Measured[]): string {
  const list = (heading: string, verdict: Row['ok']) => {
    const rows = measured.flatMap(({ figure, rows }) =>
      rows.filter(({ ok }) => ok === verdict).map(({ setup }) => `\n  ${figure}: ${setup}`),
    )
    return rows.length === 0 ? [] : [`${heading}:${rows.join('')}`]
  }
  const open = list('Neither reached nor missed, as the required value is within their spread', 'within its spread')
  const lines = [...list('Missed', false), ...open]
  return lines.length === 0 ? 'Every figure was reached.' : lines.join('\n')
}

function namesOf(figures: readonly Figure[]): readonly string[] {
  return figures.map(({ name }) => name)
}

function resultFile({ json }: BenchOptions, at: Date): string {
  if (json) return resolve(json)
  return fileURLToPath(new URL(`${at.toISOString().replace(/[:.]/g, '-')}.json`, RESULTS))
}

async function run(options: BenchOptions): Promise<void> {
  const at = new Date()
  const redis = await startRedis({ ignoreGiven: true })
  const client = new Redis({ host: redis.host, port: redis.port, maxRetriesPerRequest: null })
  const { profile } = options
  const fleet = new Fleet(profile ? ['--cpu-prof', `--cpu-prof-dir=${resolve(profile)}`] : [])
  try {
    const machine = await describeMachine(client)
    console.log(
      `${redis.source}\n${Object.entries(machine)
        .map((entry) => entry.join(' '))
        .join(' · ')}`,
    )
    const quick = options.quick === true
    const plotFile = quick ? new URL('starts.svg', RESULTS) : new URL('../docs/starts.svg', import.meta.url)
    const address = { host: redis.host, port: redis.port }
    const bench: Bench = { redis: address, client, fleet, pacedRuns: new Map(), quick, plotFile }
    const figures = FIGURES.filter(({ name }) => options.only?.includes(name) ?? true)
    const measured = await measure(bench, figures)
    const file = resultFile(options, at)
    await mkdir(dirname(file), { recursive: true })
    await writeFile(file, `${JSON.stringify({ at, quick, machine, figures: measured }, null, 2)}\n`)
    console.log(`\n${verdict(measured)}\n${file}`)
  } finally {
    await fleet.stop()
    client.disconnect()
    await redis.stop()
  }
}

await run(
  readOptions(process.argv.slice(2), {
    ...Object.fromEntries(FIGURES.map(({ name }) => [name, [name]])),
    ...Object.fromEntries(Object.entries(GROUPS).map(([group, figures]) => [group, namesOf(figures)])),
  }),
)
