/**
 * Reads values that a processor threw or returned, made by any library or by the downstream. Nothing here throws,
 * whatever getters, proxies and prototypes it meets, and the size of the kept data is bounded.
 */

const MAX_TEXT = 2000

/** The result of `look`; undefined if it throws. */
export function attempt<Value>(look: () => Value): Value | undefined {
  try {
    return look()
  } catch {
    return undefined
  }
}

/** A property, own or inherited; undefined if there is none, or if reading it throws. */
export function read(from: unknown, name: PropertyKey): unknown {
  if ((typeof from !== 'object' && typeof from !== 'function') || from === null) return undefined
  return attempt(() => (from as Record<PropertyKey, unknown>)[name])
}

/** The first of these properties that is a non-empty string, cut to 2000 characters; else ''. */
export function readText(from: unknown, ...names: readonly string[]): string {
  for (const name of names) {
    const value = read(from, name)
    if (typeof value === 'string' && value !== '') return value.slice(0, MAX_TEXT)
  }
  return ''
}

/** The result of a method without parameters; undefined if there is none, or if it throws. */
export function call(from: unknown, name: PropertyKey): unknown {
  const method = read(from, name)
  return typeof method === 'function' ? attempt(() => method.call(from)) : undefined
}
