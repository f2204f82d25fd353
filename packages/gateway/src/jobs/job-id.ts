import { createHmac, randomBytes, randomFillSync, timingSafeEqual } from 'node:crypto'
import { onceJobId } from 'sluice/internal'
import type { Identity } from '../middleware.ts'

/** What identifies a request, and its content: see {@link OnceOptions}. */
export interface Once {
  readonly key: string
  readonly fingerprint: string
}

/** An id has 27 characters: 12 bytes that make it unique, and 8 that bind it to its caller. */
const OWN_BYTES = 12
const CALLER_BYTES = 8
const FORM = /^j_([\w-]{27})(-\d{1,3})?$/
const SECRET_BYTES = 32
/** How often to check that Redis still has the secret. */
const CHECK_MS = 10_000
/** Unknown ids make Redis read the secret at most this often. */
const RECHECK_MS = 1000

/** Drawn for many ids at once: a draw costs as much as the rest of a request. */
const drawn = Buffer.allocUnsafe(OWN_BYTES * 200)
let used = drawn.length

/**
 * Ids of jobs, bound to the caller that added them: no one can guess one, or use one seen elsewhere. They are made with
 * a secret that all processes of a queue share in Redis. Nothing else depends on it: jobs added with an Idempotency-Key
 * have a record of their own.
 */
export class JobIds {
  readonly #agree: (proposed: string) => Promise<string>
  readonly #nowMs: () => number
  #secret: string | undefined
  #checkedMs = Number.NEGATIVE_INFINITY
  #agreeing: Promise<string> | undefined

  /** @param agree stores the proposed secret if there is none, and returns the stored one */
  constructor(agree: (proposed: string) => Promise<string>, nowMs: () => number = () => performance.now()) {
    this.#agree = agree
    this.#nowMs = nowMs
  }

  /** Draws an id for the first job of a request; the others derive from it. @throws what `agree` throws */
  async drawn(caller: Identity | undefined, jobs: number): Promise<string[]> {
    const secret = this.#known() ?? (await this.#ask())
    if (used === drawn.length) {
      randomFillSync(drawn)
      used = 0
    }
    used += OWN_BYTES
    const stem = boundTo(caller, drawn.subarray(used - OWN_BYTES, used), secret)
    return Array.from({ length: jobs }, (_, i) => onceJobId(stem, i))
  }

  /** The stem of ids for an idempotency key: the same for each repeat of a request. @throws what `agree` throws */
  async stemOf(caller: Identity | undefined, { key, fingerprint }: Once, jobs: number): Promise<string> {
    const secret = this.#known() ?? (await this.#ask())
    const own = hmac(secret, `once${JSON.stringify([key, fingerprint, jobs])}`).subarray(0, OWN_BYTES)
    return boundTo(caller, own, secret)
  }

  /**
   * Whether the caller added the job with this id. Other ids must not be looked up: they belong to other callers, or
   * are suffixes of BullMQ's own Redis keys, such as 'active' and 'meta'.
   * @throws what `agree` throws
   */
  async isOf(caller: Identity | undefined, id: string): Promise<boolean> {
    const stem = FORM.exec(id)?.[1]
    if (stem === undefined) return false
    const secret = this.#known() ?? (await this.#ask())
    if (isBoundTo(caller, stem, secret)) return true
    // Another process may have stored a new secret after Redis lost this one.
    if (this.#nowMs() - this.#checkedMs < RECHECK_MS) return false
    return isBoundTo(caller, stem, await this.#ask())
  }

  /** Checks in the background that Redis still has the secret: processes that start later must find it. */
  #known(): string | undefined {
    if (this.#secret !== undefined && this.#nowMs() - this.#checkedMs >= CHECK_MS) this.#ask().catch(() => {})
    return this.#secret
  }

  #ask(): Promise<string> {
    this.#agreeing ??= this.#askAnew().finally(() => {
      this.#agreeing = undefined
    })
    return this.#agreeing
  }

  async #askAnew(): Promise<string> {
    const proposed = this.#secret ?? randomBytes(SECRET_BYTES).toString('base64url')
    this.#checkedMs = this.#nowMs()
    this.#secret = await this.#agree(proposed)
    return this.#secret
  }
}

function boundTo(caller: Identity | undefined, own: Buffer, secret: string): string {
  return Buffer.concat([own, markOf(caller, own, secret)]).toString('base64url')
}

function isBoundTo(caller: Identity | undefined, stem: string, secret: string): boolean {
  const bytes = Buffer.from(stem, 'base64url')
  return timingSafeEqual(bytes.subarray(OWN_BYTES), markOf(caller, bytes.subarray(0, OWN_BYTES), secret))
}

/** The part after the name has a fixed length, so that no two callers have the same text. */
function markOf(caller: Identity | undefined, own: Buffer, secret: string): Buffer {
  const text = `caller${JSON.stringify(caller?.name ?? null)}${own.toString('base64url')}`
  return hmac(secret, text).subarray(0, CALLER_BYTES)
}

function hmac(secret: string, text: string): Buffer {
  return createHmac('sha256', secret).update(text).digest()
}
