// The hash slots of the shards of a sharded queue, and the shard of a key.

/** Hash slots of a cluster, and the polynomial of their CRC. */
const SLOTS = 16_384
const POLYNOMIAL = 0x1021

/**
 * The twelfths of the hash slots for the first twelve shards: the first two are in different halves, the first three in
 * different thirds, and so on, because the masters of a cluster usually have equal ranges of hash slots.
 */
const TWELFTHS = [0, 11, 5, 7, 3, 8, 1, 10, 4, 6, 2, 9]

/** The prefix of the whole queue's own keys: its shape and its ledger. */
export function headPrefix(prefix: string, name: string): string {
  return `{${tagOf(prefix, name)}}`
}

const prefixes = new Map<string, string>()

/** The prefix of a shard: a hash tag whose hash slot is in the shard's part of the hash slots. */
export function shardPrefix(prefix: string, name: string, shard: number): string {
  const tag = `${tagOf(prefix, name)}:${shard}`
  let found = prefixes.get(tag)
  for (let salt = 0; found === undefined; salt++) {
    const salted = `${tag}-${salt}`
    const twelfth = Math.floor((slotOf(salted) * TWELFTHS.length) / SLOTS)
    if (twelfth === TWELFTHS[shard % TWELFTHS.length]) found = `{${salted}}`
  }
  prefixes.set(tag, found)
  return found
}

/**
 * Without braces of the prefix and the name: the first closing one would end the tag, and all shards would share a hash
 * slot.
 */
function tagOf(prefix: string, name: string): string {
  return `${prefix}:${name}`.replaceAll(/[{}]/g, '')
}

/** The hash slot of a key, or of its hash tag if it has one. */
export function slotOfKey(key: string): number {
  const from = key.indexOf('{') + 1
  const to = key.indexOf('}', from)
  return slotOf(from > 0 && to > from ? key.slice(from, to) : key)
}

/** The hash slot of a hash tag: CRC-16/XMODEM. */
function slotOf(tag: string): number {
  let crc = 0
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? POLYNOMIAL : 0)) & 0xffff
  }
  return crc % SLOTS
}

/** The shard of a key by rendezvous hashing (Thaler and Ravishankar 1998). */
export function shardOf(key: string, shards: number): number {
  const hashed = hash(key)
  let [best, most] = [0, -1]
  for (let shard = 0; shard < shards; shard++) {
    const score = mix(hashed ^ mix(shard + 1))
    if (score > most) [best, most] = [shard, score]
  }
  return best
}

/** The key that places all jobs of a group. */
export function groupKey(id: string): string {
  return `group:${id}`
}

/** FNV-1a over UTF-16 units, 32 bits. */
function hash(text: string): number {
  let value = 0x811c9dc5
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193)
  return value >>> 0
}

/** Spreads 32 bits: the end of MurmurHash3. */
function mix(bits: number): number {
  let value = bits
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35)
  return (value ^ (value >>> 16)) >>> 0
}
