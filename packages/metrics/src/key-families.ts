import { keysText } from 'sluice/internal'
import type { Family } from './families.ts'
import type { QueueReading } from './fleet-reading.ts'
import { OTHER } from './queue-labels.ts'

/** Values of limits by keys. Those with a label of their own are the ones that most lanes wait for: the others are summed. */
export const KEY_FAMILIES: readonly Family<QueueReading>[] = [
  {
    name: 'sluice_key_waiting_lanes',
    type: 'gauge',
    unit: 'lanes',
    help: 'Lanes that wait for the values of limits which most wait for; `other` has the rest. Only with the option `keys`.',
    labels: { limit: [], key: [] },
    merge: 'none',
    read: ({ limitValues }) => {
      if (!limitValues) return []
      const rows = limitValues.rows.map(({ limit, keys, waitingLanes }) => ({
        labels: { limit, key: keysText(keys) },
        value: waitingLanes,
      }))
      return [...rows, { labels: { limit: OTHER, key: OTHER }, value: limitValues.otherLanes }]
    },
  },
]
