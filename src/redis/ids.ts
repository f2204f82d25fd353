import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

/** 64 random bits, once for a process: two processes that draw the same are not to be expected. */
const prefix = randomBytes(8).readBigUInt64BE().toString(36).padStart(13, '0')
let made = 0

/**
 * An id that nobody else makes. It is short: each job's id is a part of many keys and members in Redis, where one of 26
 * characters costs some percent of all work.
 */
export function uniqueId(): string {
  made += 1
  return `${prefix}${made.toString(36)}`.toUpperCase()
}

/** Who declares a shape: named in conflicts. */
export function defaultDeclarer(): string {
  return `${hostname()}:${process.pid}`
}
