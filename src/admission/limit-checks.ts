import { didYouMean } from '../call-options.ts'
import { CostTooHighError, MissingKeyError } from '../errors.ts'
import { noSuchTier } from '../limits/own-values.ts'
import { costUnder, isSubject, keysUnder, mostUnder, type QueueLimit } from '../limits/queue-limits.ts'
import { plainText } from '../plain-text.ts'
import { queueNameOf } from '../redis/keys.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { StoredShape } from '../shape/stored.ts'
import type { AddedJob } from './add-call.ts'

type JobTaken = Pick<AddedJob, 'cost' | 'costs' | 'keys' | 'group' | 'tier'>

/** A job that costs more than a limit of its queue allows at once, according to the shape. */
interface Costly {
  readonly job: JobTaken
  readonly limit: QueueLimit
  readonly asked: number
  readonly most: number
}

/**
 * Refuses jobs that lack a required key, jobs of a tier that a limit does not have, and jobs that cost more than a
 * limit ever allows at once, as far as this process knows the limits. A job that slips through gets the limit without
 * tiers, or departs when that is unused. Redis is asked only if a limit allows too little, for settings of the values
 * of the job's keys.
 * @returns nothing, a refusal that needs no answer of Redis, or one that does
 */
export function limitRefusal(
  store: ShapeStore,
  jobs: readonly JobTaken[],
): Error | Promise<Error | undefined> | undefined {
  const shape = store.memory.stored
  if (shape) for (const { costs } of jobs) if (costs) noteUnits(store.base, shape, costs)
  if (!shape || shape.limits.length === 0 || shape.mode !== 'enforce') return undefined
  for (const job of jobs) {
    const wrong = shape.limits.flatMap((limit) => wrongUnder(limit, job) ?? [])[0]
    if (wrong) return wrong
  }
  const costly = jobs.flatMap((job) => shape.limits.flatMap((limit) => costlyUnder(limit, job)))
  const fixed = costly.find(({ limit }) => limit.by === undefined)
  if (fixed) return errorOf(fixed)
  return costly.length > 0 ? firstRefused(store, costly) : undefined
}

/** Checked units of queues, each of which warns once. More than this come from outside. */
const MOST_UNITS = 1000
const noted = new Set<string>()

/**
 * Warns of costs that no limit of the queue counts. They are no error: a limit may come or go at run time, before or
 * after the programs that know its unit.
 */
function noteUnits(base: string, { limits }: StoredShape, costs: Readonly<Record<string, number>>): void {
  for (const unit in costs) {
    const id = `${base}${unit}`
    if (noted.has(id) || limits.some((limit) => limit.unit === unit) || noted.size >= MOST_UNITS) continue
    noted.add(id)
    const units = [...new Set(limits.flatMap((limit) => limit.unit ?? []))]
    const known = units.length > 0 ? `they count ${units.join(', ')}${didYouMean(unit, units)}` : 'none has a unit'
    process.emitWarning(plainText(`queue "${queueNameOf(base)}": no limit counts costs.${unit} of a job; ${known}`), {
      code: 'SLUICE_UNIT',
    })
  }
}

/** Why a limit can never admit a job, whatever it costs. */
function wrongUnder(limit: QueueLimit, { tier, group, keys }: JobTaken): Error | undefined {
  const { name, tiers, missing } = limit
  if (tier !== undefined && tiers && !Object.hasOwn(tiers, tier)) return noSuchTier(name, tiers, tier)
  const lacking = missing && Object.entries(keysUnder(limit, group?.[0] ?? '', keys)).find(([, value]) => !value)
  return lacking && new MissingKeyError(name, lacking[0])
}

function costlyUnder(limit: QueueLimit, job: JobTaken): Costly[] {
  if (limit.clampCost || !isSubject(limit, job.keys)) return []
  const [asked, most] = [costUnder(limit, job.cost, job.costs), mostUnder(limit, job.tier)]
  return asked > most ? [{ job, limit, asked, most }] : []
}

async function firstRefused(store: ShapeStore, costly: readonly Costly[]): Promise<Error | undefined> {
  for (const one of costly) {
    const { job, limit } = one
    const keys = keysUnder(limit, job.group?.[0], job.keys)
    const view = await store.view<{ readonly most?: number }>('limit', { name: limit.name, keys, tier: job.tier })
    // A removed limit, or a value without any limit, refuses nothing.
    if (view?.most !== undefined && one.asked > view.most) return errorOf({ ...one, most: view.most })
  }
  return undefined
}

function errorOf({ asked, most, limit }: Costly): CostTooHighError {
  return new CostTooHighError(asked, most, limit.name, undefined, 1, ', or give the limit clampCost: true')
}
