import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

/** 64 random bits, once per process: two processes will not collide in practice. */
const prefix = randomBytes(8).readBigUInt64BE().toString(36).padStart(13, '0').toUpperCase()
let made = 0

/**
 * A globally unique id. It is short: a job's id is part of many keys and members in Redis, and an id of 26 characters
 * costs a few percent of all work.
 */
export function uniqueId(): string {
  made += 1
  return prefix + made.toString(36).toUpperCase()
}

/** Default name under which a shape is declared, shown in conflicts. */
export function defaultDeclarer(): string {
  return `${hostname()}:${process.pid}`
}
