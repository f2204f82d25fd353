import { setTimeout as sleep } from 'node:timers/promises'
import type { ChainableCommander, Redis } from 'ioredis'
import { adminOf } from '../faults/support/own-redis.ts'
import { startReplica } from '../faults/support/replica.ts'
import { type Field, REDIS } from './field.ts'

const BASE = 'bull:torture:'
/** Longer than it takes to read what a master has; writes of others wait so long at most. */
const PAUSE_MS = 10_000

/** Empties Redis, and counts the jobs that were in it: both in one transaction. */
export function flushAll(field: Field, perSecond: number): Promise<void> {
  return field.loseData(async () => {
    for (const id of await idsIn(unfinishedOf(field.admin).flushall())) field.forgotten.add(id)
  }, perSecond)
}

/**
 * Kills the master and promotes a replica that knows nothing of the last while. What the master had to the last, and the
 * replica never had, Redis has lost; what the replica has not seen start or end is set back.
 */
export function failOver(field: Field, lagMs: number, perSecond: number): Promise<void> {
  return field.loseData(async () => {
    const replica = await startReplica(field.service, REDIS)
    await replica.cut()
    await sleep(lagMs)
    await field.admin.client('PAUSE', PAUSE_MS, 'WRITE')
    const unfinished = await idsIn(unfinishedOf(field.admin))
    await field.service.kill()
    await replica.promote()
    const promoted = adminOf(replica.url)
    const [setBack, ended] = await Promise.all([idsIn(unfinishedOf(promoted)), idsIn(endedOf(promoted))])
    for (const id of setBack) field.setBack.add(id)
    const known = new Set([...setBack, ...ended])
    for (const id of unfinished) if (!known.has(id)) field.forgotten.add(id)
    await field.moveTo(replica.service)
  }, perSecond)
}

function unfinishedOf(redis: Redis): ChainableCommander {
  return redis
    .multi()
    .lrange(`${BASE}wait`, 0, -1)
    .lrange(`${BASE}active`, 0, -1)
    .zrange(`${BASE}prioritized`, '0', '-1')
    .zrange(`${BASE}delayed`, '0', '-1')
}

function endedOf(redis: Redis): ChainableCommander {
  return redis.multi().zrange(`${BASE}completed`, '0', '-1').zrange(`${BASE}failed`, '0', '-1')
}

async function idsIn(transaction: ChainableCommander): Promise<string[]> {
  const replies = await transaction.exec()
  return (replies ?? []).flatMap(([error, reply]) => {
    if (error) throw error
    return Array.isArray(reply) ? (reply as string[]) : []
  })
}
