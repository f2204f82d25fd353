import type { GroupRow } from 'sluice/inspect'
import { countText, plainText } from 'sluice/internal'
import { answers, type ExaminedQueue, type Finding, Findings } from '../check.ts'

/** Of each kind of held groups so many are looked at. */
const LOOKED_AT = 20

/** Paused groups that go on to take jobs, with nothing to bound these: they fill the queue, or Redis. */
export async function pausedGroups(examined: ExaminedQueue): Promise<Finding[]> {
  const { inspector, queue, status } = examined
  // Each shard has groups of its own, and is checked by itself.
  if (status.shards || !status.groups || status.groups.paused === 0) return []
  const held = (await inspector.groups(queue, { count: LOOKED_AT }))?.held ?? []
  const unbounded = held.filter((group) => group.status === 'paused' && !group.bound)
  const growing = await Promise.all(unbounded.map((group) => hasGrown(examined, group)))
  const findings = new Findings('paused-groups', queue)
  return unbounded
    .filter((_, i) => growing[i])
    .map(({ id, waiting, delayed }) => {
      const name = plainText(id)
      return findings.warning(
        `group ${name} is paused and grows without a bound: ${countText(waiting + delayed, 'job')}`,
        `set a bound, such as sluice group set ${queue} '${name}' --capacity 1000 --reason '…', or resume it`,
      )
    })
}

/** Whether its newest job came after its pause. */
async function hasGrown({ client, prefix, queue }: ExaminedQueue, { id, overrides }: GroupRow): Promise<boolean> {
  const base = `${prefix}:${queue}:`
  const [newest] = await client.zrange(`${base}meta:group:jobs:${id}`, '-1', '-1')
  if (newest === undefined || !overrides.paused) return false
  const [timestamp] = (await answers(client, [['hget', base + newest, 'timestamp']])) as [string | null]
  return Number(timestamp) > overrides.paused.setAt.getTime()
}
