/** Fields of the hash `…:meta:shape`. */
export type ShapeFields = Readonly<Record<string, string>>

/** The fields that follow from declared values and overrides: SHAPE_FIELDS of `lua/shape/shapes.lua`. */
const EFFECTIVE: readonly string[] = [
  ...['rate', 'interval', 'burst', 'capacity', 'capacityHorizonMs', 'concurrency', 'mode', 'maxLatenessMs'],
  ...['horizonMs', 'onStateLoss', 'limits', 'maxWaitMs', 'reservedPlaces', 'overflow', 'overflowTo', 'audit'],
  ...['groups', 'priorityAgeingMs', 'durability'],
]
const TIMED_FEEDBACK = ['pace', 'slow', 'quota', 'concurrency']

type Rate = readonly [limit: number, periodMs: number]
interface Override {
  readonly value: unknown
  /** ms */
  readonly until?: number
}
/** What feedback set, until its end: an interval (µs) or a limit on running jobs. */
interface FeedbackEffect {
  readonly until?: number
  readonly interval?: number
  readonly limit?: number
}
type Document<T> = Readonly<Record<string, T>>

/** The shape, and the `concurrency` of BullMQ's meta hash, which its scripts obey. */
export interface ShapeInForce {
  readonly fields: ShapeFields
  readonly bullmq: string | undefined
}

/**
 * The shape as a worker's next call would find it. Overrides end on time, even if the end is not written yet: a reader
 * cannot write it, so it computes what `lua/shape/shapes.lua` would.
 * @param bullmq `concurrency` of BullMQ's meta hash: a stock queue may have written it without the shape
 */
export function shapeInForce(fields: ShapeFields, bullmq: string | undefined, nowUs: number): ShapeInForce {
  let stored: ShapeInForce = { fields, bullmq }
  for (let ends = expiresUs(stored); ends <= nowUs; ends = expiresUs(stored)) stored = resolved(stored, ends)
  const { ownConcurrency, concurrency } = stored.fields
  if (ownConcurrency !== undefined && stored.bullmq !== concurrency) stored = resolved(stored, nowUs)
  return stored
}

function expiresUs({ fields }: ShapeInForce): number {
  return Number(fields.expires ?? Number.POSITIVE_INFINITY) * 1000
}

function resolved({ fields, bullmq }: ShapeInForce, atUs: number): ShapeInForce {
  const overrides = lasting(parsed<Override>(fields.overrides), atUs)
  const feedback = lastingFeedback(parsed<FeedbackEffect>(fields.feedback), atUs)
  const effects = TIMED_FEEDBACK.flatMap((name) => feedback[name] ?? [])
  const values = valuesOf(parsed<Override>(fields.declared), overrides)
  const ends = [...Object.values(overrides), ...effects].flatMap(({ until }) => until ?? [])
  const running = concurrencyOf(values.concurrency as number | undefined, effects, { fields, bullmq })
  const kept = Object.entries(fields).filter(
    ([field]) => !EFFECTIVE.includes(field) && !['expires', 'ownConcurrency', 'digest'].includes(field),
  )
  const next = texts({
    ...Object.fromEntries(kept),
    ...values,
    overrides: JSON.stringify(overrides),
    feedback: fields.feedback && JSON.stringify(feedback),
    rate: values.rate && JSON.stringify(values.rate),
    interval: slowest(values.rate as Rate | undefined, effects),
    concurrency: running.effective,
    ownConcurrency: running.own,
    expires: ends.length > 0 ? Math.min(...ends) : undefined,
    rev: Number(fields.rev) + 1,
  })
  const changed = ['interval', 'burst'].some((field) => Number(next[field]) !== Number(fields[field] ?? Number.NaN))
  const times = {
    ...(changed ? { changedAt: String(atUs) } : {}),
    ...(next.groups === fields.groups ? {} : { groupsAt: String(atUs) }),
  }
  return { fields: { ...next, ...times }, bullmq: running.bullmq }
}

function parsed<T>(text: string | undefined): Document<T> {
  return JSON.parse(text ?? '{}') as Document<T>
}

function texts(values: Document<unknown>): ShapeFields {
  return Object.fromEntries(
    Object.entries(values).flatMap(([field, value]) => (value === undefined ? [] : [[field, String(value)]])),
  )
}

function lasting<T extends { readonly until?: number }>(entries: Document<T>, atUs: number): Document<T> {
  return Object.fromEntries(Object.entries(entries).filter(([, { until }]) => !(until && until * 1000 <= atUs)))
}

/** The other fields of feedback have no end here. */
function lastingFeedback(feedback: Document<FeedbackEffect>, atUs: number): Document<FeedbackEffect> {
  const timed = Object.entries(feedback).filter(([name]) => TIMED_FEEDBACK.includes(name))
  const rest = Object.entries(feedback).filter(([name]) => !TIMED_FEEDBACK.includes(name))
  return { ...Object.fromEntries(rest), ...lasting(Object.fromEntries(timed), atUs) }
}

/** An override of null means "no limit". */
function valuesOf(declared: Document<Override>, overrides: Document<Override>): Document<unknown> {
  const entries = Object.entries({ ...declared, ...overrides })
  return Object.fromEntries(entries.flatMap(([field, { value }]) => (value === null ? [] : [[field, value]])))
}

/** µs on the grid of the bucket. */
function slowest(rate: Rate | undefined, effects: readonly FeedbackEffect[]): number | undefined {
  const intervals = effects.flatMap(({ interval }) => interval ?? [])
  if (rate) intervals.push((rate[1] * 1000) / rate[0])
  return intervals.length > 0 ? Math.max(...intervals.map((us) => Math.ceil(us * 1024) / 1024)) : undefined
}

/** As in `lua/shape/shapes.lua`: the smallest of the shape's, the feedback's and a stock queue's. */
function concurrencyOf(own: number | undefined, effects: readonly FeedbackEffect[], { fields, bullmq }: ShapeInForce) {
  const { concurrency: before, ownConcurrency: known } = fields
  const limit = effects.findLast((effect) => effect.limit !== undefined)?.limit
  if (limit === undefined && known === undefined)
    return { effective: own, bullmq: textOr(own, before ? undefined : bullmq) }
  const text = own === undefined ? '' : String(own)
  const [knownOwn, knownStock = ''] = (known ?? ':').split(':')
  const unchanged = knownOwn === text ? knownStock : ''
  const stock = bullmq === before ? unchanged : (bullmq ?? '')
  if (limit === undefined) return { effective: own, bullmq: stock || textOr(own, undefined) }
  const least = Math.min(limit, own ?? limit, stock === '' ? limit : Number(stock))
  return { effective: least, bullmq: String(least), own: `${text}:${stock}` }
}

function textOr(value: number | undefined, otherwise: string | undefined): string | undefined {
  return value === undefined ? otherwise : String(value)
}
