import { attempt, call, read } from './read.ts'

/** No well-behaved server sends more fields or longer values. */
const MAX_FIELDS = 200
const MAX_VALUE = 8192

/**
 * Header fields by name in lower case. Accepts the forms of the libraries: `Headers`, Maps and other iterables of
 * pairs, AxiosHeaders and gRPC's `Metadata` (`toJSON`), plain objects with strings or arrays, and flat arrays of names
 * and values. Repeated fields are joined by ', '. Anything else is not a field.
 */
export function headersOf(given: unknown): Readonly<Record<string, string>> {
  const headers: Record<string, string> = Object.create(null)
  let fields = 0
  for (const [name, value] of attempt(() => pairsOf(call(given, 'toJSON') ?? given)) ?? []) {
    if (++fields > MAX_FIELDS) break
    const line = attempt(() => lineOf(value))
    const key = attempt(() => lineOf(name)?.toLowerCase())
    if (line === undefined || !key) continue
    const before = headers[key]
    headers[key] = (before === undefined ? line : `${before}, ${line}`).slice(0, MAX_VALUE)
  }
  return headers
}

function pairsOf(fields: unknown): readonly (readonly [unknown, unknown])[] {
  if (Array.isArray(fields)) return Array.isArray(fields[0]) ? firstPairs(fields) : flatPairs(fields)
  if (typeof read(fields, Symbol.iterator) === 'function') return firstPairs(fields as Iterable<unknown>)
  return typeof fields === 'object' && fields !== null ? Object.entries(fields) : []
}

/** undici's own form: name, value, name, value. */
function flatPairs(fields: readonly unknown[]): [unknown, unknown][] {
  const count = Math.min(Math.floor(fields.length / 2), MAX_FIELDS)
  return Array.from({ length: count }, (_, i) => [fields[2 * i], fields[2 * i + 1]])
}

/** Bounded, because an iterator may never end. */
function firstPairs(fields: Iterable<unknown>): [unknown, unknown][] {
  const pairs: [unknown, unknown][] = []
  for (const field of fields) {
    if (pairs.length === MAX_FIELDS) break
    pairs.push([read(field, 0), read(field, 1)])
  }
  return pairs
}

function lineOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value.slice(0, MAX_VALUE)
  if (typeof value === 'number') return String(value)
  if (value instanceof Uint8Array) return Buffer.from(value.subarray(0, MAX_VALUE)).toString('latin1')
  if (!Array.isArray(value)) return undefined
  const lines = value.slice(0, MAX_FIELDS).map((line) => (Array.isArray(line) ? undefined : lineOf(line)))
  const known = lines.filter((line) => line !== undefined)
  return known.length > 0 ? known.join(', ') : undefined
}
