import type { GroupBound } from '../queue/groups.ts'
import type { GroupDefaults, GroupFields } from '../shape/groups.ts'
import type { Answer, Batch } from './batch.ts'

/** What `PlacesReading` needs of the shape. */
export const PLACES_FIELDS = ['capacity', 'capacityHorizonMs', 'reservedPlaces', 'claimed', 'claimedUntil'] as const

/** The places of a queue that a group competes for: as in `lua/groups/share.lua`, for readers that run no scripts. */
export class PlacesReading {
  readonly #capacity: number | undefined
  readonly #taken: readonly Answer<number>[]
  readonly #claimed: number

  /** @param stored the fields above */
  constructor(base: string, batch: Batch, stored: readonly (string | null)[], nowUs: number) {
    const [capacity, horizonMs, reserved, claimed, claimedUntil] = stored
    // Jobs of groups have no priority.
    const kept = reserved && !reserved.includes(' 0:') ? Number.parseInt(reserved, 10) : 0
    this.#capacity = capacity ? Math.max(0, Number(capacity) - kept) : undefined
    this.#claimed = Number(claimedUntil) < nowUs ? 0 : Number(claimed)
    // BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
    const due = horizonMs && (Math.floor(nowUs / 1000) + Number(horizonMs) + 1) * 4096 - 1
    this.#taken = [
      batch.add('llen', `${base}wait`),
      batch.add('zcard', `${base}prioritized`),
      due ? batch.add('zcount', `${base}delayed`, '-inf', due) : batch.add('zcard', `${base}delayed`),
      batch.add('zcard', `${base}waiting-children`),
    ]
  }

  /** @param held how many places the group holds; isHeld: whether it is paused, or held by feedback */
  boundOf(defaults: GroupDefaults, inForce: GroupFields, held: number, isHeld: boolean): GroupBound | undefined {
    const own = inForce.capacity ?? Number.POSITIVE_INFINITY
    const most = Math.min(own, this.#shareOf(defaults, held, isHeld))
    if (most === Number.POSITIVE_INFINITY) return undefined
    return { jobs: most, by: most === own ? 'capacity' : 'share' }
  }

  #shareOf({ capacity: own, share }: GroupDefaults, held: number, isHeld: boolean): number {
    const ofFree = share?.ofFree ?? (own === undefined ? 1 : undefined)
    const capacity = this.#capacity
    if (capacity === undefined || ofFree === undefined) return Number.POSITIVE_INFINITY
    const depth = this.#taken.reduce((sum, count) => sum + count(), this.#claimed)
    const room = capacity - (depth - held)
    if (room <= 0) return 0
    const most = (ofFree * room * room) / (capacity + ofFree * room)
    return isHeld ? Math.floor(most) : Math.ceil(most)
  }
}
