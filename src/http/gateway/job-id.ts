import { randomFillSync } from 'node:crypto'

/** As many bytes as 27 characters hold. */
const BYTES = 20
/** Those of `addOnce` look the same. */
const FORM = /^j_[\w-]{27}(-\d{1,3})?$/

/** Drawn for many ids at once: a draw costs as much as the rest of a request. */
const drawn = Buffer.allocUnsafe(BYTES * 200)
let used = drawn.length

/** An id that nobody can guess: whoever knows it may read the job. */
export function newJobId(): string {
  if (used === drawn.length) {
    randomFillSync(drawn)
    used = 0
  }
  used += BYTES
  return `j_${drawn.toString('base64url', used - BYTES, used)}`
}

/**
 * Whether a job that came through a gateway could have this id. Others are not looked up: ids are ends of Redis keys, and
 * 'active' or 'meta' would be one of BullMQ's own.
 */
export function isJobId(text: string): boolean {
  return FORM.test(text)
}
