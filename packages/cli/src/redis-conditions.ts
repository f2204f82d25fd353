import type { Condition, QueueStatus, RedisMemory, RedisState } from 'sluice/inspect'
import { bytesText, countText, formatDuration, HIGH_MEMORY, shareOf } from 'sluice/internal'

/** An unusual state of Redis. */
interface RedisCondition extends Pick<Condition, 'level' | 'text' | 'next'> {
  readonly name: 'Writes refused' | 'Memory' | 'Replicas' | 'Samples deleted'
}

/** A replica without a sign of life for this long needs a look. */
const LAG_MS = 5000
/** The charts cover this time. */
const DAY_MS = 86_400_000
const REFUSALS = {
  memory: 'its memory is full',
  disk: 'its disk fails',
  replicas: 'too few replicas are in sync',
}
const NEXT = 'sluice doctor says what to do'

/** The conditions of Redis, the most urgent first; the page of the dashboard has the same. */
export function redisConditions(state: RedisState, queues: readonly QueueStatus[]): RedisCondition[] {
  const found = [refusal(state), nearlyFull(state), behind(state), deleted(state, queues)]
  return found.filter((condition) => condition !== undefined)
}

function refusal({ refusesWrites, memory }: RedisState): RedisCondition | undefined {
  if (refusesWrites === undefined) return undefined
  const size = refusesWrites === 'memory' && memory ? ` (${memoryText(memory)})` : ''
  const text = `${REFUSALS[refusesWrites]}${size}: no job can be added`
  return { name: 'Writes refused', level: 'error', text, next: NEXT }
}

function nearlyFull({ refusesWrites, memory }: RedisState): RedisCondition | undefined {
  if (refusesWrites !== undefined || !memory || shareOf(memory) < HIGH_MEMORY) return undefined
  const text = `${memoryText(memory)} is used: when it is full, jobs are refused`
  return { name: 'Memory', level: 'warning', text, next: NEXT }
}

function behind({ replicas = [] }: RedisState): RedisCondition | undefined {
  const apart = replicas.filter(({ state }) => state !== 'online').length
  const lagMs = Math.max(0, ...replicas.map((replica) => replica.lagMs))
  const parts = [
    ...(apart === 0 ? [] : [`${countText(apart, 'replica')} not in sync`]),
    ...(lagMs < LAG_MS ? [] : [`one was last heard from ${formatDuration(lagMs)} ago`]),
  ]
  if (parts.length === 0) return undefined
  const text = `${parts.join(', ')}: a failover would lose what it has not received`
  return { name: 'Replicas', level: 'warning', text, next: NEXT }
}

function deleted({ refusesWrites }: RedisState, queues: readonly QueueStatus[]): RedisCondition | undefined {
  if (refusesWrites !== undefined) return undefined
  const dates = queues.flatMap(({ at, samplesDeletedAt: date }) => {
    return date && at.getTime() - date.getTime() < DAY_MS ? [date] : []
  })
  const last = dates.toSorted((one, other) => other.getTime() - one.getTime())[0]
  if (!last) return undefined
  const text = `at ${last.toISOString()} to free memory: earlier points of the charts are two minutes apart`
  return { name: 'Samples deleted', level: 'warning', text, next: '' }
}

/** `92% of 64 MB`, rounded down: 100% is full. */
function memoryText(memory: RedisMemory): string {
  const { usedBytes, maxBytes = usedBytes } = memory
  return `${Math.floor(shareOf(memory) * 100)}% of ${bytesText(maxBytes)}`
}
