import { Batch, type BatchClient } from './batch.ts'

/** BullMQ's score of a prioritized job is its priority times this, plus a counter; so is that in the line of a group. */
export const BAND = 2 ** 32
/** The greatest priority that BullMQ takes. */
const GREATEST = 2 ** 21
/** At most so many commands at first, and later at least so many for each gap, or one for each priority in it. */
const AT_FIRST = 64
const PER_GAP = 8

/** The first job of a priority. */
export interface PriorityHead {
  readonly priority: number
  readonly id: string
}

/** Priorities that may be in use: from one on, and below another. */
interface Gap {
  readonly from: number
  readonly below: number
}

/**
 * The first job of each priority in use, of at most `most` priorities, the least ones. To ask for one after the other
 * would take a round trip each. Here one batch asks at many places for the next priority in use, and the next batch asks
 * only in the gaps: one batch finds all priorities up to 32, and at most eight find any.
 */
export async function priorityHeads(
  redis: BatchClient,
  set: string,
  { least, most }: { readonly least: number; readonly most: number },
): Promise<PriorityHead[]> {
  const found = new Map<number, string>()
  let gaps: Gap[] = [{ from: least, below: GREATEST + 1 }]
  let places = [firstPlaces(least)]
  while (gaps.length > 0) {
    const heads = await nextHeads(redis, set, places)
    for (const head of heads.flat()) if (head) found.set(head.priority, head.id)
    const last = [...found.keys()].sort((one, other) => one - other)[most - 1] ?? GREATEST + 1
    gaps = gaps
      .flatMap((gap, i) => gapsLeft(gap, places[i] as number[], heads[i] as (PriorityHead | undefined)[]))
      .filter(({ from }) => from < last)
    const perGap = Math.max(PER_GAP, Math.floor(AT_FIRST / gaps.length))
    places = gaps.map((gap) => placesIn(gap, perGap))
  }
  const sorted = [...found].sort(([one], [other]) => one - other).slice(0, most)
  return sorted.map(([priority, id]) => ({ priority, id }))
}

/** Small priorities are the most frequent: half of the places are the first ones, the others are ever farther apart. */
function firstPlaces(least: number): number[] {
  const half = AT_FIRST / 2
  const near = Array.from({ length: half }, (_, i) => i)
  const far = Array.from({ length: half }, (_, i) => Math.floor(half * (GREATEST / half) ** (i / half)))
  return [...new Set([...near, ...far])].map((offset) => least + offset)
}

/** Each priority of a gap, or places at even distances, the first one included. */
function placesIn({ from, below }: Gap, count: number): number[] {
  const width = below - from
  const places = Math.min(width, count)
  return Array.from({ length: places }, (_, i) => from + Math.floor((i * width) / places))
}

/** What may still be in use between what was found and the next place. */
function gapsLeft(gap: Gap, places: readonly number[], heads: readonly (PriorityHead | undefined)[]): Gap[] {
  return heads.flatMap((head, i) => {
    const below = places[i + 1] ?? gap.below
    const from = head ? head.priority + 1 : below
    return from < below ? [{ from, below }] : []
  })
}

/** From each place on, the first job of the next priority in use; undefined where there is none. */
async function nextHeads(
  redis: BatchClient,
  set: string,
  places: readonly (readonly number[])[],
): Promise<(PriorityHead | undefined)[][]> {
  const batch = new Batch(redis)
  const answers = places.map((some) =>
    some.map((place) =>
      batch.add<string[]>('zrange', set, place * BAND, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'),
    ),
  )
  await batch.run()
  return answers.map((some) =>
    some.map((answer) => {
      const [id, score] = answer().flat()
      return id === undefined ? undefined : { id, priority: Math.floor(Number(score) / BAND) }
    }),
  )
}
