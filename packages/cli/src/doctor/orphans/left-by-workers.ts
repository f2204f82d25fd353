import type { Redis } from 'ioredis'
import { countText } from 'sluice/internal'
import { type Finding, Findings } from '../finding.ts'
import { answers } from './job-places.ts'
import { shownIds } from './shown-ids.ts'

/** Live workers report more often, and sleepers are woken and claims expire sooner. */
const GONE_US = 60_000_000

/** What dead workers and producers left in the keys of Sluice. */
export async function leftByWorkers(
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
