import type { QueueStatus } from 'sluice/inspect'
import type { Identity } from 'sluice-gateway'
import { type FleetFacts, fleetAnswer } from './fleet-answer.ts'
import type { FleetReader } from './fleet-reader.ts'
import { segmentOf } from './path-segment.ts'
import { fleetQuery, readQuery } from './queue-params.ts'
import type { QueueReads } from './queue-reads.ts'
import { maySee } from './visible.ts'

export interface AnswerParts {
  readonly fleet: FleetReader
  readonly reads: QueueReads
  readonly facts: FleetFacts
}

/** The first page of a list. `PAGE` of `web/jobs/paged.js` is the same number. */
const FIRST = { start: 0, count: 10 }
/** Lists with more text than this are left to the page to ask for: with the data of jobs they may have megabytes. */
const MAX_LISTS_LENGTH = 256 * 1024
/** The list that is open at first is the first of these that has jobs, as in `web/jobs/jobs.js`. */
const WAITING = ['waiting', 'prioritized', 'delayed'] as const

/**
 * What a page would ask for before it is shown, by the paths that `web/base/api.js` asks, relative to the page. A page of a
 * queue needs to know of no other queue.
 * @param name of the queue that is shown; undefined: all are
 */
export async function firstAnswers(
  { fleet, reads, facts }: AnswerParts,
  identity: Identity | undefined,
  name: string | undefined,
): Promise<Readonly<Record<string, unknown>>> {
  if (name === undefined) {
    return { 'api/fleet': fleetAnswer(await fleet.page(readQuery(fleetQuery, {}), identity), facts) }
  }
  const [names, redis] = await Promise.all([fleet.names(), fleet.redis(identity)])
  const seen = names.filter((one) => maySee(identity, one))
  const news = seen.includes(name) ? await reads.news(name) : undefined
  const queues = news ? [news.status] : []
  const at = news?.status.at ?? new Date()
  const page = { at, redis, queues, total: seen.length, matching: seen.length, start: 0, sums: undefined }
  return { 'api/fleet': fleetAnswer(page, facts), ...(news && (await queueAnswers(reads, news))) }
}

async function queueAnswers(reads: QueueReads, news: { readonly status: QueueStatus }) {
  const { name, groups } = news.status
  const path = `api/queues/${segmentOf(name)}`
  // The page is shown before its lists: they need the part that does not answer.
  if (news.status.unread) return { [path]: news }
  const lists = new Set<(typeof WAITING)[number]>(['waiting', openList(news.status)])
  const jobs = [...lists].map(async (state) => {
    const { start, count } = FIRST
    return [`${path}/jobs?state=${state}&start=${start}&count=${count}`, await reads.jobs(name, state, FIRST)] as const
  })
  const more = groups === undefined ? [] : [reads.groups(name).then((found) => [`${path}/groups`, found] as const)]
  const [found, others] = await Promise.all([Promise.all(jobs), Promise.all(more)])
  const brought = JSON.stringify(found).length > MAX_LISTS_LENGTH ? [] : found
  return { [path]: news, ...Object.fromEntries([...brought, ...others]) }
}

function openList({ waiting, prioritized, delayed }: QueueStatus): (typeof WAITING)[number] {
  const counts = { waiting: waiting - prioritized, prioritized, delayed }
  return WAITING.find((state) => counts[state] > 0) ?? 'waiting'
}
