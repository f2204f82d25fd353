/**
 * Reading what a processor threw or returned: made by any library, or by a peer. Nothing here throws, whatever getters,
 * proxies and prototypes it meets, and nothing is kept that has no bound.
 */

const MAX_TEXT = 2000

/** What it gives; undefined where it throws. */
export function attempt<Value>(look: () => Value): Value | undefined {
  try {
    return look()
  } catch {
    return undefined
  }
}

/** A property, own or inherited; undefined where there is none, or where reading it throws. */
export function read(from: unknown, name: PropertyKey): unknown {
  if ((typeof from !== 'object' && typeof from !== 'function') || from === null) return undefined
  return attempt(() => (from as Record<PropertyKey, unknown>)[name])
}

/** The first of these properties that is a text and not empty, cut to 2000 characters; else ''. */
export function readText(from: unknown, ...names: readonly string[]): string {
  for (const name of names) {
    const value = read(from, name)
    if (typeof value === 'string' && value !== '') return value.slice(0, MAX_TEXT)
  }
  return ''
}

/** What a method without parameters returns; undefined where there is none, or where it throws. */
export function call(from: unknown, name: PropertyKey): unknown {
  const method = read(from, name)
  return typeof method === 'function' ? attempt(() => method.call(from)) : undefined
}
