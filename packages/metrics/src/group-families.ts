import type { GroupRow, GroupsView } from 'sluice/inspect'
import { each, type Family } from './families.ts'
import type { QueueReading } from './fleet-reading.ts'
import { OTHER } from './queue-labels.ts'

/** The groups of a queue. Those with a label of their own are the oldest and the largest: the others are summed. */
export const GROUP_FAMILIES: readonly Family<QueueReading>[] = [
  {
    name: 'sluice_groups',
    type: 'gauge',
    unit: 'groups',
    help: 'Groups with waiting jobs: in line, or held by a rate or limit, by a concurrency or by a pause.',
    labels: { state: ['waiting', 'limited', 'maxed', 'paused'] },
    read: ({ status }) => each('state', { ...status.groups }),
  },
  {
    name: 'sluice_group_waiting_jobs',
    type: 'gauge',
    unit: 'jobs',
    help: 'Waiting jobs of each group with a label.',
    labels: { group: [] },
    merge: 'none',
    read: ({ groups }) => (groups ? waitingPoints(groups) : []),
  },
  {
    name: 'sluice_group_head_age_seconds',
    type: 'gauge',
    unit: 'seconds',
    help: 'How long the next job of each of these groups has been ready.',
    labels: { group: [] },
    merge: 'none',
    read: ({ groups }) =>
      groups ? rowsOf(groups).map(({ id, headAgeMs = 0 }) => ({ labels: { group: id }, value: headAgeMs / 1000 })) : [],
  },
]

/** A group that is named as the rest is among it. */
function rowsOf({ oldest, largest }: GroupsView): GroupRow[] {
  const rows = new Map([...oldest, ...largest].map((row) => [row.id, row]))
  rows.delete(OTHER)
  return [...rows.values()]
}

function waitingPoints(groups: GroupsView) {
  const rows = rowsOf(groups)
  const rest = groups.waiting - rows.reduce((sum, { waiting }) => sum + waiting, 0)
  const points = rows.map(({ id, waiting }) => ({ labels: { group: id }, value: waiting }))
  return [...points, { labels: { group: OTHER }, value: Math.max(0, rest) }]
}
