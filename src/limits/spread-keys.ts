/**
 * The hash tags of the parts of a spread limit. Each is in a different 16th of the 16,384 slots of a cluster, so that
 * nodes with equally many slots decide for equally many keys. There are only 16, since concurrent decisions of a
 * program take one script per part, and since each part may store what applies to the whole limit. They are part of
 * every key: changing them resets all keys.
 */
const TAGS = [...'abcdefghijklmnop'].map((part) => `keys:${part}:`)

export const SPREAD_PARTS = TAGS.length

/** The part of an encoded key: the same for every limit, so that all decisions about a key are in one slot. */
export function partOfKey(encoded: string): number {
  // Few programs have a spread limit, and zlib takes as long to load as a room of ours.
  return process.getBuiltinModule('node:zlib').crc32(encoded) % SPREAD_PARTS
}

/**
 * The control keys of the parts. Only spread limits have such a tag: names have no colon. The control hash of the limit
 * itself is where it would be without spreading, so that a name stands for one limit.
 */
export function partControls(prefix: string, name: string): readonly string[] {
  return TAGS.map((tag) => `${prefix}:limit:{${tag}}:${name}`)
}
