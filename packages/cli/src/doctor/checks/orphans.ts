import type { Redis } from 'ioredis'
import { countText } from 'sluice/internal'
import { answers, type Examined, type Finding, Findings, permitted, shownIds } from '../check.ts'

/**
 * Data that no code will read again: jobs in no state, leftovers of dead workers, keys of queues that no longer exist.
 */
export async function orphans(examined: Examined): Promise<Finding[]> {
  const { client, inspector, prefix, queues } = examined
  const findings = new Findings('orphans')
  return permitted(findings, '+scan +type +pttl and reading', async () => {
    const scanned = await scanQueueKeys(client, prefix)
    const found = [...(await goneQueues(findings, examined, scanned)), ...(await goneNames(findings, examined))]
    const statuses = await inspector.status(queues)
    for (const [i, queue] of queues.entries()) {
      const keys = scanned.queues.get(queue)
      if (!keys) continue
      const base = `${prefix}:${queue}:`
      const living = new Set(statuses[i]?.workers.map(({ id }) => id))
      found.push(...(await jobOrphans(client, base, queue, keys)))
      found.push(...(await leftByWorkers(client, base, queue, keys.own, living)))
    }
    if (!scanned.complete) {
      found.push(findings.skipped(`only ${scanned.keys} keys were checked: there are too many`, 'none'))
    }
    return found.length > 0 ? found : [findings.ok(`none among ${countText(scanned.keys, 'key')} under ${prefix}:`)]
  })
}

/** Keys of Sluice for queues that BullMQ does not know. Checked twice: a queue may be in creation, or in removal. */
async function goneQueues(findings: Findings, { client, prefix }: Examined, scanned: ScannedKeys): Promise<Finding[]> {
  const names = [...scanned.queues].filter(([, { exists, own }]) => !exists && own.length > 0).map(([name]) => name)
  const exist = await answers(
    client,
    names.flatMap((name) => [
      ['exists', `${prefix}:${name}:meta`],
      ['exists', ...(scanned.queues.get(name)?.own ?? []).map((suffix) => `${prefix}:${name}:${suffix}`)],
    ]),
  )
  const gone = names.filter((_name, i) => exist[2 * i] === 0 && exist[2 * i + 1] !== 0)
  if (!scanned.complete || gone.length === 0) return []
  const remedy = `UNLINK ${prefix}:<queue>:meta:*, or queue.obliterate()`
  return [findings.warning(`queues that are gone have keys left: ${shownIds(gone)}`, remedy)]
}

/** Listed names of queues that have neither a shape nor jobs. */
async function goneNames(findings: Findings, { client, prefix }: Examined): Promise<Finding[]> {
  const key = `${prefix}:shaped-queues`
  const names = await client.smembers(key)
  const exist = await answers(
    client,
    names.map((name) => ['exists', `${prefix}:${name}:meta`, `${prefix}:${name}:meta:shape`]),
  )
  const gone = names.filter((_name, i) => exist[i] === 0)
  if (gone.length === 0) return []
  return [findings.warning(`queues that are gone are still listed: ${shownIds(gone)}`, `SREM ${key} <queue>`)]
}

/** Live workers report more often, and sleepers are woken and claims expire sooner. */
const GONE_US = 60_000_000

/** What dead workers and producers left in the keys of Sluice. */
async function leftByWorkers(
  client: Redis,
  base: string,
  queue: string,
  own: readonly string[],
  living: ReadonlySet<string>,
): Promise<Finding[]> {
  const findings = new Findings('orphans', queue)
  const [seconds, us] = (await client.time()) as unknown as [string, string]
  const goneUs = Number(seconds) * 1e6 + Number(us) - GONE_US
  return [
    ...(await sleepers(findings, client, base, living, goneUs)),
    ...(await grants(findings, client, base, own, living)),
    ...(await claims(findings, client, base, goneUs)),
  ]
}

async function sleepers(
  findings: Findings,
  client: Redis,
  base: string,
  living: ReadonlySet<string>,
  goneUs: number,
): Promise<Finding[]> {
  const key = `${base}meta:sleepers`
  const overdue = await client.zrangebyscore(key, '-inf', goneUs)
  const gone = overdue.filter((id) => !living.has(id))
  if (gone.length === 0) return []
  return [findings.warning(`workers that are gone are still listed as sleepers: ${shownIds(gone)}`, `ZREM ${key} <id>`)]
}

/** Grants have a TTL and expire by themselves; one without a TTL is orphaned. */
async function grants(
  findings: Findings,
  client: Redis,
  base: string,
  own: readonly string[],
  living: ReadonlySet<string>,
): Promise<Finding[]> {
  const strange = own.filter((suffix) => {
    const [, worker] = /^meta:grants:(.+):\d+$/.exec(suffix) ?? []
    return worker !== undefined && !living.has(worker)
  })
  const left = await answers(
    client,
    strange.map((suffix) => ['pttl', base + suffix]),
  )
  const kept = strange.filter((_suffix, i) => left[i] === -1)
  if (kept.length === 0) return []
  return [findings.warning(`grants of workers that are gone have no TTL: ${shownIds(kept)}`, `UNLINK ${base}<key>`)]
}

async function claims(findings: Findings, client: Redis, base: string, goneUs: number): Promise<Finding[]> {
  const key = `${base}meta:claims`
  const ended = Object.entries(await client.hgetall(key)).filter(([, claim]) => Number(claim.split(':')[1]) < goneUs)
  if (ended.length === 0) return []
  const places = ended.reduce((sum, [, claim]) => sum + Number(claim.split(':')[0]), 0)
  const message = `expired claims of ${countText(places, 'place')} are still there: ${shownIds(ended.map(([id]) => id))}`
  return [findings.warning(message, `HDEL ${key} <id>`)]
}

/** Keys that belong to no job, or to a job in no state. Each is checked twice, since jobs move during the check. */
async function jobOrphans(client: Redis, base: string, queue: string, keys: QueueKeys): Promise<Finding[]> {
  const findings = new Findings('orphans', queue)
  const found = [
    ...(await strayJobs(findings, client, base, keys)),
    ...(await strayLocks(findings, client, base, keys)),
    ...(await strayParts(findings, client, base, keys)),
  ]
  return found
}

async function strayJobs(findings: Findings, client: Redis, base: string, { jobs }: QueueKeys): Promise<Finding[]> {
  let stray: readonly string[] = jobs
  for (let look = 0; look < 2 && stray.length > 0; look++) {
    const placed = await placedJobs(client, base, stray)
    if (!placed)
      return [findings.skipped('the queue is too long to look for jobs in no state', 'check again when it is shorter')]
    stray = stray.filter((id) => !placed.has(id))
  }
  const facts = await answers(
    client,
    stray.flatMap((id) => [['type', base + id]]),
  )
  const hashes = stray.filter((_id, i) => facts[i] === 'hash')
  const ends = await answers(
    client,
    hashes.flatMap((id) => [
      ['hget', base + id, 'finishedOn'],
      ['exists', base + id],
    ]),
  )
  // A job that was removed meanwhile has no end either.
  const lost = hashes.filter((_id, i) => !ends[2 * i] && ends[2 * i + 1] === 1)
  const ended = hashes.filter((_id, i) => ends[2 * i])
  const remedy = 'add them again by hand where they still matter, then queue.removeOrphanedJobs() of BullMQ'
  return [
    ...(lost.length > 0 ? [findings.error(`jobs that have not ended are in no state: ${shownIds(lost)}`, remedy)] : []),
    ...(ended.length > 0
      ? [
          findings.warning(
            `jobs that have ended are in no state: ${shownIds(ended)}`,
            'queue.removeOrphanedJobs() of BullMQ',
          ),
        ]
      : []),
  ]
}

async function strayLocks(findings: Findings, client: Redis, base: string, { locks }: QueueKeys): Promise<Finding[]> {
  if (locks.length === 0) return []
  let stray: string[] = locks
  for (let look = 0; look < 2 && stray.length > 0; look++) {
    const active = new Set(await wholeList(client, `${base}active`))
    stray = stray.filter((id) => !active.has(id))
  }
  const left = await answers(
    client,
    stray.map((id) => ['pttl', `${base}${id}:lock`]),
  )
  // A lock with a TTL expires within the lock duration; only a job that was forcibly moved back leaves one without.
  const kept = stray.filter((_id, i) => left[i] === -1)
  if (kept.length === 0) return []
  const remedy = `UNLINK ${base}<id>:lock`
  return [findings.warning(`locks without a TTL belong to no running job: ${shownIds(kept)}`, remedy)]
}

async function strayParts(findings: Findings, client: Redis, base: string, { parts }: QueueKeys): Promise<Finding[]> {
  let stray = parts
  for (let look = 0; look < 2 && stray.length > 0; look++) {
    const wanted = stray.flatMap(([id, suffix]) => [
      ['exists', base + id],
      ['exists', base + suffix],
    ])
    const exist = await answers(client, wanted)
    stray = stray.filter((_part, i) => exist[2 * i] === 0 && exist[2 * i + 1] === 1)
  }
  if (stray.length === 0) return []
  const shown = shownIds(stray.map(([, suffix]) => suffix))
  return [findings.warning(`logs or dependencies of jobs that are gone: ${shown}`, `UNLINK ${base}<key>`)]
}

const PAGE = 1000
const MAX_PAGES = 1000
/** For each kind and queue: enough to show that something is wrong, and a bound on the follow-up commands. */
const MAX_KEPT = 10_000
/** Keys under a queue's base that are not jobs. */
const STRUCTURE = new Set([
  ...['', 'active', 'wait', 'waiting-children', 'paused', 'id', 'delayed', 'prioritized', 'stalled-check', 'completed'],
  ...['failed', 'stalled', 'repeat', 'limiter', 'meta', 'events', 'pc', 'marker', 'de', 'priority'],
])
const JOB_PART = /^(.+):(lock|logs|dependencies|processed|failed|unsuccessful)$/
/** A job of a scheduler; other keys with this prefix are BullMQ's own, not jobs. */
const SCHEDULED = /^repeat:.+:\d+$/
const NO_JOB = /^(repeat|de|dn|metrics|relay):/

/** The keys of one queue, by their kind. */
interface QueueKeys {
  /** Whether BullMQ knows the queue. */
  exists: boolean
  /** Ids of keys that look like jobs. */
  readonly jobs: string[]
  /** Ids of jobs that have a lock. */
  readonly locks: string[]
  /** Logs and dependencies: the job's id, and the key after the base. */
  readonly parts: (readonly [id: string, suffix: string])[]
  /** Sluice's keys, after the base: `meta:shape`. */
  readonly own: string[]
}

interface ScannedKeys {
  readonly queues: ReadonlyMap<string, QueueKeys>
  readonly keys: number
  /** False if the bound was reached before the end. */
  readonly complete: boolean
}

/** Scans all keys under a prefix, up to a bound of 1,000 pages of 1,000 keys of the server. */
export async function scanQueueKeys(client: Redis, prefix: string): Promise<ScannedKeys> {
  const queues = new Map<string, QueueKeys>()
  const match = `${prefix.replaceAll(/[*?[\]\\]/g, '\\$&')}:*`
  let keys = 0
  let cursor = '0'
  for (let page = 0; page < MAX_PAGES; page++) {
    const [next, found] = await client.scan(cursor, 'MATCH', match, 'COUNT', PAGE)
    keys += found.length
    for (const key of found) sort(queues, key.slice(prefix.length + 1))
    cursor = next
    if (cursor === '0') return { queues, keys, complete: true }
  }
  return { queues, keys, complete: false }
}

function sort(queues: Map<string, QueueKeys>, rest: string): void {
  const colon = rest.indexOf(':')
  const name = rest.slice(0, colon)
  // Without a colon it is not a queue's key; limits may share the prefix.
  if (colon < 0 || name === 'limit') return
  const keys = queues.get(name) ?? { exists: false, jobs: [], locks: [], parts: [], own: [] }
  queues.set(name, keys)
  place(keys, rest.slice(colon + 1))
}

function place(keys: QueueKeys, suffix: string): void {
  if (STRUCTURE.has(suffix)) {
    keys.exists = true
    return
  }
  if (suffix.startsWith('meta:')) {
    keep(keys.own, suffix)
    return
  }
  const [, id, part] = JOB_PART.exec(suffix) ?? []
  if (part === 'lock') keep(keys.locks, id as string)
  else if (part !== undefined) keep(keys.parts, [id as string, suffix] as const)
  else if (SCHEDULED.test(suffix) || !NO_JOB.test(suffix)) keep(keys.jobs, suffix)
}

function keep<T>(list: T[], item: T): void {
  if (list.length < MAX_KEPT) list.push(item)
}

const SETS = ['completed', 'failed', 'delayed', 'prioritized', 'waiting-children']
const LISTS = ['active', 'wait', 'paused']
/**
 * A longer list is not read. A shorter one is read once as a whole: looking up each job would scan it each time.
 */
const MAX_LIST = 500_000
const JOBS_AT_ONCE = 500

/** Which of these jobs are in a list or set of their queue. Undefined if the queue is too long to be read. */
async function placedJobs(client: Redis, base: string, ids: readonly string[]): Promise<Set<string> | undefined> {
  const placed = new Set<string>()
  for (let start = 0; start < ids.length; start += JOBS_AT_ONCE) {
    const batch = ids.slice(start, start + JOBS_AT_ONCE)
    const scores = await answers(
      client,
      batch.flatMap((id) => SETS.map((set) => ['zscore', base + set, id])),
    )
    for (const [i, id] of batch.entries()) {
      if (scores.slice(i * SETS.length, (i + 1) * SETS.length).some((score) => score !== null)) placed.add(id)
    }
  }
  const open = new Set(ids.filter((id) => !placed.has(id)))
  if (open.size === 0) return placed
  for (const list of LISTS) {
    if ((await client.llen(base + list)) > MAX_LIST) return undefined
    for (const id of await wholeList(client, base + list)) if (open.has(id)) placed.add(id)
  }
  return placed
}

/** The ids of a list, read from the end at which jobs leave: new ones are added at the other end. */
async function wholeList(client: Redis, key: string): Promise<string[]> {
  const ids: string[] = []
  for (let end = -1; ; end -= PAGE) {
    const page = await client.lrange(key, end - PAGE + 1, end)
    ids.push(...page)
    if (page.length < PAGE) return ids
  }
}
