import zlib from 'node:zlib'

/**
 * The hash tags of the parts that the keys of a spread limit fall into. Of the 16,384 slots of a cluster each lies in another
 * 16th, so that nodes with as many slots decide about as many keys. They are few, since what a program asks for at the same
 * time is one script for each part, and since each part may keep what holds for the whole limit. They are part of every key:
 * with others all keys begin anew.
 */
const TAGS = [...'abcdefghijklmnop'].map((part) => `keys:${part}:`)

export const SPREAD_PARTS = TAGS.length

// The types of the oldest Node that is supported leave it out.
const { crc32 } = zlib as unknown as { crc32(text: string): number }

/** The part of a key, as `encodeKey` has it: the same for every limit, so that all that is decided for it lies in one slot. */
export function partOfKey(encoded: string): number {
  return crc32(encoded) % SPREAD_PARTS
}

/**
 * The control keys of the parts. No limit that is not spread has such a tag: no name has a colon. The control hash of the
 * limit itself lies where it would if it were not spread, so that a name stands for one limit.
 */
export function partControls(prefix: string, name: string): readonly string[] {
  return TAGS.map((tag) => `${prefix}:limit:{${tag}}:${name}`)
}
