import type { LimitValueRow, LimitValuesView } from 'sluice/inspect'
import { keysText } from 'sluice/internal'
import type { Family } from './families.ts'
import type { QueueReading } from './fleet-reading.ts'
import type { Point } from './points.ts'
import { OTHER } from './queue-labels.ts'

/** Values of limits by keys. Those with a label of their own are the ones that most lanes wait for, and of which most jobs run. */
export const KEY_FAMILIES: readonly Family<QueueReading>[] = [
  {
    name: 'sluice_key_waiting_lanes',
    type: 'gauge',
    unit: 'lanes',
    help: 'Lanes that wait for each value with a label.',
    labels: { limit: [], key: [] },
    merge: 'none',
    read: ({ limitValues }) =>
      pointsOf(limitValues, ({ waitingLanes }) => waitingLanes || undefined, limitValues?.otherLanes),
  },
  {
    name: 'sluice_key_places',
    type: 'gauge',
    unit: 'places',
    help: 'Places of `concurrency` limits that each of these values uses.',
    labels: { limit: [], key: [] },
    merge: 'none',
    read: ({ status: { shape }, limitValues }) => {
      const limits = (shape?.limits ?? []).filter(
        ({ by, pool, algorithm }) => (by || pool) && algorithm === 'concurrency',
      )
      if (limits.length === 0) return []
      const names = limits.map(({ name }) => name)
      const held = ({ limit, used }: LimitValueRow) => (names.includes(limit) ? used : undefined)
      return pointsOf(limitValues, held, limitValues?.otherPlaces)
    },
  },
  {
    name: 'sluice_key_used_ratio',
    type: 'gauge',
    unit: '0 to 1, or above',
    help: 'The share of its places, window or burst that each of these values uses; above 1 while it owes units.',
    labels: { limit: [], key: [] },
    merge: 'none',
    read: ({ limitValues }) =>
      pointsOf(limitValues, ({ used, most }) => (used === undefined || most === undefined ? undefined : used / most)),
  },
]

/** @param rest of the values without a row; undefined where they have no sum */
function pointsOf(
  limitValues: LimitValuesView | undefined,
  numberOf: (row: LimitValueRow) => number | undefined,
  rest?: number,
): Point[] {
  const points = (limitValues?.rows ?? []).flatMap((row) => {
    const value = numberOf(row)
    return value === undefined ? [] : [{ labels: { limit: row.limit, key: keysText(row.keys) }, value }]
  })
  return rest === undefined ? points : [...points, { labels: { limit: OTHER, key: OTHER }, value: rest }]
}
