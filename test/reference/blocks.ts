import { readFileSync } from 'node:fs'
import { gatewayTable } from '../../packages/gateway/src/program/settings.ts'
import { METRICS } from '../../packages/metrics/src/create-metrics.ts'
import type { SettingTable } from '../../packages/programs/src/settings.ts'
import { commonTable } from '../../packages/workers/src/common-settings.ts'
import { databaseWritesProgram } from '../../packages/workers/src/db-writes/program.ts'
import { emailProgram } from '../../packages/workers/src/email/program.ts'
import { httpProgram } from '../../packages/workers/src/http/program.ts'
import { documents } from '../package/code-blocks.ts'
import { globalOptionsText } from './commands.ts'
import { Declarations } from './declarations.ts'
import { errorsTable } from './errors.ts'
import { eventsTable, type More, meanings, optionsTable, settingsText, table } from './tables.ts'

const PROGRAMS = [emailProgram.settings, databaseWritesProgram.settings, httpProgram.settings]
const COMMON = commonTable('')

const OF_SHAPE: More = {
  reservedPlaces: 'admission.md#reserved-places',
  overflow: 'admission.md#overflow',
  maxWaitMs: 'admission.md#start-deadlines',
  onClosed: '#a-rate-that-follows-the-clock',
  priorityAgeingMs: 'admission.md#ageing',
  groups: 'groups.md',
  limits: 'limits.md#a-queues-limits',
  rampUp: 'feedback.md#the-control-loop',
  maxLatenessMs: 'algorithm.md#late-jobs',
  horizonMs: 'algorithm.md#horizon',
  onStateLoss: 'algorithm.md#lost-state',
  durability: 'high-availability.md#waiting-for-replicas',
  audit: 'doctor.md#audit',
}
const FUNCTIONS = 'compatibility.md#redis-without-functions'
const OF_WORKER: More = {
  functions: FUNCTIONS,
  batch: 'batches.md',
  deadLetter: 'failures.md#dead-letters',
  maxLoopUtilisation: 'workers.md#a-busy-process',
}
const OF_LIMITER: More = {
  functions: FUNCTIONS,
  algorithm: '#choosing-an-algorithm',
  spread: '#on-a-cluster',
  sync: '#decisions-in-memory',
  local: '#decisions-in-memory',
  mitigation: '#decisions-in-memory',
}
const OF_JOB: More = {
  costs: 'limits.md#a-queues-limits',
  mustStartBefore: 'admission.md#start-deadlines',
  runTimeoutMs: 'failures.md#runs-that-take-too-long',
  group: 'groups.md#what-applies-to-a-group',
  keys: 'limits.md#by-the-keys-of-jobs',
}
const OF_GROUP: More = { capacity: '#what-counts' }
const OF_LIMIT: More = {
  by: '#by-the-keys-of-jobs',
  warmUp: '#warm-up-plans',
  pool: '#pools',
  onConflict: '#one-job-at-a-time',
}
const LISTENERS = {
  worker: 'ShapedWorkerListener',
  queue: 'ShapedQueueListener',
  QueueEvents: 'ShapedQueueEventsListener',
}

/** The tables that pages have from the code, by their names. */
const BLOCKS: Readonly<Record<string, (declarations: Declarations) => string>> = {
  shape: (declarations) => table(['field', 'meaning'], meanings(declarations.ownMembers('Shape'), OF_SHAPE)),
  groups: (declarations) =>
    table(
      ['field', 'meaning'],
      meanings(
        ['GroupFields', 'GroupDefaults'].flatMap((name) => declarations.ownMembers(name)),
        OF_GROUP,
      ),
    ),
  'job-options': (declarations) =>
    table(['option', 'meaning'], meanings(declarations.ownMembers('ShapedJobsOptions'), OF_JOB)),
  'job-group': (declarations) => optionsTable(declarations, ['JobGroup']),
  'worker-options': (declarations) =>
    table(['option', 'meaning'], meanings(declarations.ownMembers('ShapedWorkerOptions'), OF_WORKER)),
  'feedback-options': (declarations) => optionsTable(declarations, ['FeedbackOptions']),
  events: (declarations) => eventsTable(declarations, LISTENERS),
  limiter: (declarations) => optionsTable(declarations, ['LimiterOptions'], OF_LIMITER),
  'queue-limit': (declarations) =>
    table(['field', 'meaning'], meanings(declarations.ownMembers('QueueLimit'), OF_LIMIT)),
  'rate-limit': (declarations) => optionsTable(declarations, ['RateLimitOptions']),
  metrics: () => metricsText(),
  'metrics-options': (declarations) => optionsTable(declarations, ['MetricsOptions']),
  'gateway-settings': () => settingsText([gatewayTable]),
  'gateway-queue': (declarations) => optionsTable(declarations, ['QueueRule']),
  'worker-settings': () => settingsText(PROGRAMS.map(commonOf)),
  'email-settings': () => settingsText([emailProgram.settings], COMMON),
  'db-writes-settings': () => settingsText([databaseWritesProgram.settings], COMMON),
  'http-settings': () => settingsText([httpProgram.settings], COMMON),
  'global-options': () => globalOptionsText(),
  errors: (declarations) => errorsTable(declarations),
}

/** The settings that all worker programs have, each with its own defaults. */
function commonOf(settings: SettingTable): SettingTable {
  const names = Object.keys(COMMON)
  return Object.fromEntries(Object.entries(settings).filter(([name]) => names.includes(name)))
}

/** Each metric with the values of its labels, and below it what it means. */
function metricsText(): string {
  const entries = METRICS.map(({ name, labels: { queue: _, ...labels }, help }) => {
    const shown = Object.entries(labels).map(([label, values]) => [label, values.join('|')].filter(Boolean).join('='))
    return `${name}${shown.length > 0 ? `{${shown.join(',')}}` : ''}\n    ${help}`
  })
  return `\`\`\`\n${entries.join('\n')}\n\`\`\``
}

/** From its first line to its last, which `npm run reference` writes. */
const BLOCK = /^<!-- table: ([\w-]+), from the code; npm run reference -->\n\n[\s\S]*?\n*^<!-- end of table -->$/gm

/** Every document that has tables from the code: as it is, and as it should be. */
export function filledDocuments(): { readonly file: string; readonly now: string; readonly filled: string }[] {
  const declarations = new Declarations()
  const used = new Set<string>()
  const found = documents().map((file) => {
    const now = readFileSync(file, 'utf8')
    const filled = now.replaceAll(BLOCK, (block, name: string) => {
      const render = BLOCKS[name]
      if (!render) throw new Error(`${file} has a table '${name}', but blocks.ts does not`)
      used.add(name)
      const [first] = block.split('\n')
      return `${first}\n\n${render(declarations)}\n\n<!-- end of table -->`
    })
    return { file, now, filled }
  })
  const unused = Object.keys(BLOCKS).filter((name) => !used.has(name))
  if (unused.length > 0) throw new Error(`no document has the table of ${unused.join(', ')}`)
  return found.filter(({ now }) => now.includes('<!-- table: '))
}
