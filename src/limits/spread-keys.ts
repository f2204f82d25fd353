/**
 * The hash tags of the parts of a spread limit. Each is in a different 16th of the 16,384 hash slots of a cluster, so
 * that nodes with equally many hash slots decide for equally many keys. There are only 16, because concurrent decisions
 * of a program take one script per part, and because each part may store data of the whole limit. They are part of
 * every key: changing them resets all keys.
 */
const TAGS = [...'abcdefghijklmnop'].map((part) => `keys:${part}:`)

export const SPREAD_PARTS = TAGS.length

/** The part of an encoded key: the same for every limit, so that all decisions about a key are in one hash slot. */
export function partOfKey(encoded: string): number {
  // Few programs have a spread limit, and zlib takes as long to load as one of our rooms.
  return process.getBuiltinModule('node:zlib').crc32(encoded) % SPREAD_PARTS
}

/**
 * The control keys of the parts. Only spread limits have such a tag: names have no colon. The control hash of the limit
 * itself is in the same place as without spreading, so that a name stands for one limit.
 */
export function partControls(prefix: string, name: string): readonly string[] {
  return TAGS.map((tag) => `${prefix}:limit:{${tag}}:${name}`)
}
