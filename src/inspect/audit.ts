import type { Answer, Batch } from './batch.ts'
import type { AuditEntry } from './queue-status.ts'
import { type StreamReply, streamEntries } from './stream.ts'

/** As written by `lua/lib/audit.lua`: numbers may be strings. */
type Granted = readonly [
  id: string,
  slotUs: number | string,
  cost: number | string,
  interval: number | string,
  burst: number | string,
  limits: Readonly<Record<string, number>> | 0,
  group?: readonly [id: string, interval: number | string, burst: number | string] | 0,
  groupLimits?: readonly [id: string, taken: Readonly<Record<string, number>>],
]

/** The departures that `shape.audit` recorded, in the order in which they were granted. */
export class AuditReading {
  readonly #granted: Answer<StreamReply>
  readonly #started: Answer<StreamReply>

  constructor(base: string, batch: Batch) {
    this.#granted = batch.add('xrange', `${base}meta:audit`, '-', '+')
    this.#started = batch.add('xrange', `${base}meta:audit:starts`, '-', '+')
  }

  entries(): AuditEntry[] {
    const starts = startsBySlot(this.#started())
    // A returned slot may have been granted again: the last entry of a slot is the one that was used.
    return listed<Granted>(this.#granted())
      .toReversed()
      .map(([jobId, slot, cost, interval, burst, limits, group, own]) => {
        const startedUs = starts.get(Number(slot))?.pop()
        return {
          jobId,
          slotUs: Number(slot),
          cost: Number(cost),
          ...(Number(interval) > 0 ? { intervalUs: Number(interval), burst: Number(burst) } : {}),
          limits: limits === 0 ? {} : limits,
          ...(group ? { group: { id: group[0], intervalUs: Number(group[1]), burst: Number(group[2]) } } : {}),
          ...(own ? { groupLimits: { id: own[0], taken: own[1] } } : {}),
          ...(startedUs === undefined ? {} : { startedUs }),
        }
      })
      .reverse()
  }
}

/** When processors were called, by the slots of their jobs; the latest call of a slot comes last. */
function startsBySlot(reply: StreamReply): Map<number, number[]> {
  const starts = new Map<number, number[]>()
  for (const [slotUs, startedUs] of listed<readonly [number, number]>(reply)) {
    const known = starts.get(slotUs)
    if (known) known.push(startedUs)
    else starts.set(slotUs, [startedUs])
  }
  return starts
}

/** Each entry of the stream holds a list. */
function listed<T>(reply: StreamReply): T[] {
  return streamEntries(reply).flatMap(({ fields }) => JSON.parse(fields.n ?? '[]') as T[])
}
