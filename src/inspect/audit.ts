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
  group?: GrantedGroup | 0,
  groupLimits?: readonly [id: string, taken: Readonly<Record<string, number>>],
]

type GrantedGroup = readonly [id: string, interval: number | string, burst: number | string]

/** What changed later of a charge, as written by `lua/lib/audit.lua`. */
type Settled = readonly [id: string, slotUs: string, rate: string, group: string]

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
    const refunds = refundsOf(this.#granted())
    // A returned slot may have been granted again: the last entry of a slot is the one that was used.
    return listed<Granted>(this.#granted())
      .toReversed()
      .map(([jobId, slot, cost, interval, burst, limits, group, own]) => {
        const startedUs = starts.get(Number(slot))?.pop()
        const refund = refunds.get(departureKey(jobId, slot))
        return {
          jobId,
          slotUs: Number(slot),
          cost: Number(cost),
          ...(refund && refund.rate.most > 0 ? { refunded: refund.rate.most } : {}),
          ...(Number(interval) > 0 ? { intervalUs: Number(interval), burst: Number(burst) } : {}),
          limits: limits === 0 ? {} : limits,
          ...(group ? { group: groupOf(group, refund?.group.most ?? 0) } : {}),
          ...(own ? { groupLimits: { id: own[0], taken: own[1] } } : {}),
          ...(startedUs === undefined ? {} : { startedUs }),
        }
      })
      .reverse()
  }
}

function groupOf([id, interval, burst]: GrantedGroup, refunded: number): NonNullable<AuditEntry['group']> {
  return { id, intervalUs: Number(interval), burst: Number(burst), ...(refunded > 0 ? { refunded } : {}) }
}

function departureKey(jobId: string, slot: number | string): string {
  return `${slot} ${jobId}`
}

/** What `settleCost` gave back of a charge. */
class Refund {
  #units = 0
  /** At most, over time: others may have left on it before more was charged again. */
  most = 0

  add(units: number): void {
    this.#units += units
    this.most = Math.max(this.most, this.#units)
  }
}

function refundsOf(reply: StreamReply): Map<string, { readonly rate: Refund; readonly group: Refund }> {
  const refunds = new Map<string, { readonly rate: Refund; readonly group: Refund }>()
  for (const { fields } of streamEntries(reply)) {
    if (fields.s === undefined) continue
    const [jobId, slot, rate, group] = JSON.parse(fields.s) as Settled
    const key = departureKey(jobId, slot)
    const refund = refunds.get(key) ?? { rate: new Refund(), group: new Refund() }
    refund.rate.add(-Number(rate))
    refund.group.add(-Number(group))
    refunds.set(key, refund)
  }
  return refunds
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
