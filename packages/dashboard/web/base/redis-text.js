import { bytes, clock, duration, plural } from './format.js'

/**
 * @typedef {import('../wire.d.ts').Fleet['redis']} Redis
 * @typedef {{ kind: 'full' | 'feedback' | 'plain', label: string, title: string }} RedisBadge
 */

/** As `HIGH_MEMORY` of `src/inspect/redis-state.ts`. */
const HIGH_MEMORY = 0.9
/** A replica that was not heard from for this long needs a look. */
const LAG_MS = 5000
/** The charts reach back as far. */
const DAY_MS = 86_400_000

/** Why Redis refuses writes. */
const REFUSALS = {
  memory: 'its memory is full',
  disk: 'its disk fails',
  replicas: 'too few replicas are in sync',
}

/**
 * @param {Redis} redis
 * @returns {string} `Redis 7.4.1, master, memory 61 % of 2 GB`
 */
export function redisText({ version = 'Redis', role, memory, replicas = [] }) {
  const slowest = slowestOf(replicas)
  const parts = [
    version,
    role === 'master' && role,
    memory && `memory ${memoryText(memory)}`,
    slowest && `${plural(replicas.length, 'replica')} ${duration(slowest.lagMs)} behind`,
  ]
  return parts.filter(Boolean).join(', ')
}

/** @param {NonNullable<Redis['memory']>} memory */
function memoryText({ usedBytes, maxBytes }) {
  return maxBytes === undefined
    ? `${bytes(usedBytes)}, no maximum`
    : `${percent(usedBytes / maxBytes)} of ${bytes(maxBytes)}`
}

/** @param {number} share rounded down: 100 % is full */
function percent(share) {
  return `${Math.floor(share * 100)}%`
}

/** @param {NonNullable<Redis['replicas']>} replicas */
function slowestOf(replicas) {
  return [...replicas].sort((one, other) => other.lagMs - one.lagMs)[0]
}

/**
 * @param {Redis} redis
 * @param {string} deleted as {@link deletedText}
 * @returns {RedisBadge[]} what needs a look
 */
export function redisBadges({ role, lagMs, memory, replicas = [], refusesWrites }, deleted) {
  const slowest = slowestOf(replicas)
  const share = memory?.maxBytes === undefined ? 0 : memory.usedBytes / memory.maxBytes
  const isLate = slowest !== undefined && slowest.lagMs >= LAG_MS
  const apart = replicas.filter(({ state }) => state !== 'online').length
  /** @type {(RedisBadge | false | undefined)[]} */
  const badges = [
    refusesWrites && { kind: 'full', label: 'Writes refused', title: REFUSALS[refusesWrites] },
    !refusesWrites &&
      share >= HIGH_MEMORY &&
      memory && {
        kind: 'feedback',
        label: `Memory ${percent(share)}`,
        title: `${memoryText(memory)}: when it is full, jobs are refused`,
      },
    role === 'replica' && {
      kind: 'plain',
      label: `replica, ${lagMs === undefined ? 'lag unknown' : `${duration(lagMs)} behind`}`,
      title: 'the data comes from a replica',
    },
    isLate && {
      kind: 'feedback',
      label: `Replica ${duration(slowest.lagMs)} behind`,
      title: 'a failover would lose what it has not received',
    },
    apart > 0 && {
      kind: 'feedback',
      label: `${plural(apart, 'replica')} not in sync`,
      title: 'still loading, or cut off',
    },
    deleted !== '' &&
      !refusesWrites && {
        kind: 'feedback',
        label: deleted,
        title: 'earlier points of the charts are two minutes apart',
      },
  ]
  return badges.filter((badge) => typeof badge === 'object')
}

/**
 * @param {Redis} redis
 * @returns {string} sentences; '' where writes are taken
 */
export function refusalText({ refusesWrites, memory }) {
  if (refusesWrites === undefined) return ''
  const size = refusesWrites === 'memory' && memory ? ` (${memoryText(memory)})` : ''
  return `Redis refuses writes: ${REFUSALS[refusesWrites]}${size}. No job can be added.`
}

/**
 * @param {readonly import('../wire.d.ts').Queue[]} queues
 * @param {string} at now, on Redis's clock
 * @returns {string} '' where none were deleted in the last day
 */
export function deletedText(queues, at) {
  const times = queues.flatMap(({ samplesDeletedAt }) => samplesDeletedAt ?? []).map((text) => Date.parse(text))
  const last = Math.max(...times)
  if (Date.parse(at) - last > DAY_MS || times.length === 0) return ''
  return `Samples were deleted at ${clock(new Date(last), false)} to free memory`
}
