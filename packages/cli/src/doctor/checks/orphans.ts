import { countText } from 'sluice/internal'
import type { Examined } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'
import { answers } from '../orphans/job-places.ts'
import { leftByWorkers } from '../orphans/left-by-workers.ts'
import { jobOrphans } from '../orphans/orphans-of-queue.ts'
import { type ScannedKeys, scanQueueKeys } from '../orphans/queue-keys.ts'
import { shownIds } from '../orphans/shown-ids.ts'
import { permitted } from '../permission.ts'

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
