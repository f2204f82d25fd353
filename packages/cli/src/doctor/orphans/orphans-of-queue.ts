import type { Redis } from 'ioredis'
import { type Finding, Findings } from '../finding.ts'
import { answers, placedJobs, wholeList } from './job-places.ts'
import type { QueueKeys } from './queue-keys.ts'
import { shownIds } from './shown-ids.ts'

/** Keys that belong to no job, or to a job in no state. Each is checked twice, since jobs move during the check. */
export async function jobOrphans(client: Redis, base: string, queue: string, keys: QueueKeys): Promise<Finding[]> {
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
