import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Closers } from 'sluice-programs'
import { type Shape, ShapedQueue } from '../../../src/index.ts'
import { startRedis } from '../../services/redis.ts'
import { startSmtpSink } from '../../services/smtp.ts'
import { type Child, startChild } from '../child.ts'
import { followDepartures } from '../departure-log.ts'
import { stopAll } from '../fleet.ts'
import { usual } from '../limits.ts'
import type { StartOptions } from '../options.ts'
import { compiledProgram, makeRunFolder } from '../run-folder.ts'
import type { Screen } from '../screen.ts'
import { paceOf } from '../stage.ts'
import { worstExcess } from '../windows.ts'
import { counted } from '../words.ts'
import { type Tenant, tenantsOf } from './load.ts'
import { type TenantMail, type TenantRun, tenantPlot, tenantTable } from './report.ts'

/** What both runs share. */
interface TenantContext {
  readonly rate: string
  readonly workers: number
  readonly tenants: readonly Tenant[]
  readonly redisUrl: string
  readonly isGiven: boolean
  readonly programs: string
  readonly dir: string
  readonly screen: Screen
  readonly signal: AbortSignal
}

const QUEUE = 'emails'
const WORKER = 'workers/email.ts'
const EVERY_MS = 20
const SHOWN_EVERY_MS = 1000
const BOOT_TIMEOUT_MS = 15_000
/** How long the last mails may take beyond the time at the rate. */
const GRACE_MS = 30_000

/** Mails of many tenants through one queue, first as one line and then in groups. @returns the exit code: 0 or 1 */
export async function runTenants(
  options: StartOptions & { readonly tenants: number },
  screen: Screen,
  signal: AbortSignal,
  closers: Closers,
): Promise<number> {
  const { rate = usual.rate, workers, tenants: count, seconds = 20, plot, programs } = options
  const dir = await makeRunFolder(closers)
  screen.say('Starting Redis and SMTP server …')
  const redis = await startRedis()
  closers.push(() => redis.stop())
  screen.say(`Redis       ${redis.source}`)
  signal.throwIfAborted()
  const { limit, periodUs } = paceOf(rate)
  const tenants = tenantsOf(count, Math.round((limit * seconds * 1e6) / periodUs), seconds * 1000)
  const context = {
    rate,
    workers,
    tenants,
    redisUrl: redis.url,
    isGiven: redis.kind === 'given',
    programs,
    dir,
    screen,
    signal,
  }
  const alone = await runOnce('one line', undefined, context, closers)
  const grouped = await runOnce('groups', {}, context, closers)
  return conclude([alone, grouped], context, { windowMs: (seconds * 1000) / 2, plot })
}

async function conclude(
  runs: readonly TenantRun[],
  { tenants, rate, screen }: TenantContext,
  { windowMs, plot }: { readonly windowMs: number; readonly plot: string | undefined },
): Promise<number> {
  screen.say(`\n${tenantTable(tenants, runs, windowMs)}\n`)
  screen.say(`Rate and share are those of the first ${windowMs / 1000} s; the longest wait is that of the whole run.`)
  if (plot !== undefined) {
    await writeFile(
      plot,
      tenantPlot(tenants, runs, `Longest wait of each tenant, ${tenants.length} tenants at ${rate}`),
    )
    screen.say(`The plot is in ${plot}.`)
  }
  const expected = tenants.reduce((sum, { addedAtMs }) => sum + addedAtMs.length, 0)
  const wrong = runs.flatMap(({ title, mails, excess }) => [
    ...(mails.length === expected ? [] : [`${title}: ${mails.length} of ${expected} mails arrived`]),
    ...(excess > 0 ? [`${title}: ${counted(excess, 'job')} above the bound of the rate`] : []),
  ])
  if (wrong.length > 0) screen.say(`Not as promised:\n${wrong.map((line) => `  ${line}`).join('\n')}`)
  else screen.say('No departure above the bound, every mail delivered once.')
  return wrong.length > 0 ? 1 : 0
}

/** The mails of one run: when each was added, and when it arrived. */
class Mailing {
  readonly total: number
  readonly received: TenantMail[] = []
  readonly #tenants: readonly Tenant[]
  readonly #added = new Map<string, { readonly tenant: string; readonly atMs: number }>()
  readonly #counts = new Map<string, number>()
  #startMs = 0

  constructor(tenants: readonly Tenant[]) {
    this.#tenants = tenants
    this.total = tenants.reduce((sum, { addedAtMs }) => sum + addedAtMs.length, 0)
  }

  start(): void {
    this.#startMs = nowMs()
  }

  get sinceMs(): number {
    return nowMs() - this.#startMs
  }

  /** What is to be added now. */
  due(): { tenant: string; subject: string }[] {
    const [atMs, sinceMs] = [nowMs(), this.sinceMs]
    return this.#tenants.flatMap(({ name: tenant, addedAtMs }) => {
      const first = this.#counts.get(tenant) ?? 0
      const last = addedAtMs.filter((ms) => ms <= sinceMs).length
      this.#counts.set(tenant, last)
      return addedAtMs.slice(first, last).map((_, i) => {
        const subject = `${tenant} mail ${first + i + 1}`
        this.#added.set(subject, { tenant, atMs })
        return { tenant, subject }
      })
    })
  }

  arrived(subject: string, atMs: number): void {
    const added = this.#added.get(subject)
    if (!added) return
    this.received.push({ tenant: added.tenant, atMs: atMs - this.#startMs, waitMs: atMs - added.atMs })
  }
}

function nowMs(): number {
  return performance.timeOrigin + performance.now()
}

/** Sends the mails of all tenants through real workers to a real mail server. */
async function runOnce(
  title: string,
  groups: Record<string, never> | undefined,
  context: TenantContext,
  closers: Closers,
): Promise<TenantRun> {
  const { rate, tenants, workers, screen } = context
  const mailing = new Mailing(tenants)
  const sink = await startSmtpSink({
    onMail: ({ subject, receivedAtMs }) => mailing.arrived(subject, receivedAtMs),
  })
  closers.push(() => sink.stop())
  const prefix = `sluice-demo-${randomBytes(6).toString('hex')}`
  // A tenant holds at most what is free: none is refused.
  const capacity = 2 * mailing.total
  const shape = { rate, capacity, ...(groups ? { groups } : {}) }
  const queue = await openQueue(prefix, shape, context, closers)
  const dir = join(context.dir, prefix)
  await mkdir(dir)
  const departureLog = join(dir, 'departures.ndjson')
  const log = await followDepartures(departureLog, 'sluice')
  closers.push(() => log.close())
  const env = {
    ...{ REDIS_URL: context.redisUrl, PREFIX: prefix, QUEUE, RATE: rate, CAPACITY: String(capacity) },
    ...{ GROUP_DEFAULTS: groups ? JSON.stringify(groups) : '', SMTP_URL: sink.url, DEPARTURE_LOG: departureLog },
  }
  const children = Array.from({ length: workers }, (_, i) => startWorker(`worker ${i + 1}`, { ...context, dir }, env))
  closers.push(() => stopAll(children))
  screen.say(`\n${title}: ${mailing.total} mails of ${tenants.length} tenants at ${rate}, ${workers} worker processes`)
  await Promise.race([failureOf(children), flow(queue, mailing, groups !== undefined, context)])
  await stopAll(children)
  const slots = (await log.read()).map(({ departure }) => departure.departureTimeUs!)
  const excess = worstExcess(
    slots.toSorted((one, other) => one - other),
    paceOf(rate),
  )
  return { title, mails: mailing.received, excess }
}

async function openQueue(
  prefix: string,
  shape: Shape,
  { redisUrl, isGiven }: TenantContext,
  closers: Closers,
): Promise<ShapedQueue> {
  const queue = new ShapedQueue(QUEUE, { connection: { url: redisUrl }, prefix, shape })
  closers.push(async () => {
    if (isGiven) await queue.obliterate({ force: true })
    await queue.close()
  })
  await queue.waitUntilReady()
  return queue
}

function startWorker(
  name: string,
  { programs, dir }: Pick<TenantContext, 'programs' | 'dir'>,
  env: Readonly<Record<string, string>>,
): Child {
  const logFile = join(dir, `${name.replaceAll(' ', '-')}.log`)
  const program = compiledProgram(programs, WORKER)
  return startChild({ name, program, env: { ...env, SHUTDOWN_TIMEOUT_MS: '8000' }, logFile })
}

/** Rejects when a worker ends by itself. */
async function failureOf(children: readonly Child[]): Promise<never> {
  const error = await Promise.race(children.map(async ({ ended }) => (await ended) ?? new Promise<never>(() => {})))
  throw error
}

/** Adds the mails when they are due, and waits until all have arrived. */
async function flow(
  queue: ShapedQueue,
  mailing: Mailing,
  grouped: boolean,
  { rate, workers, screen, signal }: TenantContext,
): Promise<void> {
  const bootedMs = performance.now() + BOOT_TIMEOUT_MS
  while (performance.now() < bootedMs && (await queue.getWorkersCount()) < workers) {
    await delay(100, undefined, { signal })
  }
  const { limit, periodUs } = paceOf(rate)
  const untilMs = (mailing.total * periodUs) / limit / 1000 + GRACE_MS
  let shownMs = 0
  mailing.start()
  while (mailing.received.length < mailing.total && mailing.sinceMs < untilMs) {
    const due = mailing.due()
    if (due.length > 0) await queue.addBulk(due.map(({ tenant, subject }) => mailJob(tenant, subject, grouped)))
    if (mailing.sinceMs - shownMs >= SHOWN_EVERY_MS) {
      shownMs = mailing.sinceMs
      screen.say(`${Math.round(shownMs / 1000)} s: ${mailing.received.length} of ${mailing.total} mails received`)
    }
    await delay(EVERY_MS, undefined, { signal })
  }
}

function mailJob(tenant: string, subject: string, grouped: boolean) {
  const data = { from: `news@${tenant}.example`, to: 'reader@example.com', subject, text: 'Hello' }
  const retries = { attempts: 5, backoff: { type: 'exponential', delay: 500 } }
  return { name: 'mail', data, opts: grouped ? { ...retries, group: { id: tenant } } : retries }
}
