import { didYouMean, gotText } from '../call-options.ts'
import { InvalidShapeError } from '../errors.ts'
import { wholeFrom, wholeWithin } from '../field-check.ts'

/** Requirements for the acceptance of a job, beyond its storage by the master. */
export interface Durability {
  /** At least this many replicas have it. */
  readonly replicas: number
  /** How long a call waits for them, including its wait behind other calls, at most 5000. ms, default 1000. */
  readonly timeoutMs?: number
}

const DEFAULT_TIMEOUT_MS = 1000
/** One check of `redis/connection-watch.ts` less than the number that replaces a silent connection. */
const MAX_TIMEOUT_MS = 5000
const REPLICAS = wholeFrom(1)
const TIMEOUT_MS = wholeWithin(1, MAX_TIMEOUT_MS)
const FIELDS = ['replicas', 'timeoutMs']
const EXPECTED =
  `{ replicas: ${REPLICAS.expected}, timeoutMs: ${TIMEOUT_MS.expected} }, the latter optional: a connection that waits ` +
  'for longer could be taken for silent, and replaced'

/**
 * @returns the stored form: the number of replicas and the time, separated by a blank
 * @throws InvalidShapeError
 */
export function encodeDurability(value: unknown): string {
  const { replicas, timeoutMs = DEFAULT_TIMEOUT_MS } = (value ?? {}) as Partial<Durability>
  const unknown = Object.keys(value ?? {}).find((field) => !FIELDS.includes(field))
  if (unknown !== undefined || !REPLICAS.ok(replicas) || !TIMEOUT_MS.ok(timeoutMs)) {
    const hint = unknown === undefined ? '' : didYouMean(unknown, FIELDS)
    throw new InvalidShapeError(`shape.durability must be ${EXPECTED}; got ${gotText(value)}${hint}`)
  }
  return `${replicas} ${timeoutMs}`
}

export function decodeDurability(stored: string): Required<Durability> {
  const [replicas, timeoutMs] = stored.split(' ').map(Number) as [number, number]
  return { replicas, timeoutMs }
}

/** The stronger of two: for jobs that are accepted together. */
export function strongerOf(
  one: Required<Durability> | undefined,
  other: Required<Durability> | undefined,
): Required<Durability> | undefined {
  if (!one || !other) return one ?? other
  return {
    replicas: Math.max(one.replicas, other.replicas),
    timeoutMs: Math.max(one.timeoutMs, other.timeoutMs),
  }
}
