import { createHash, randomBytes } from 'node:crypto'
import { checkCallOptions } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { AdmissionEstimate } from './reply.ts'

/** Option key under which the first of the jobs carries its {@link OnceCall}. */
export const ONCE = Symbol('sluice.once')

/** Option key under which `addOnce` may get the stem of the job ids: 27 characters, the same for the same request. */
export const STEM = Symbol('sluice.stem')

/** How a repeated call is recognised. */
export interface OnceOptions {
  /** The caller's key, 1 to 1024 arbitrary characters, unique within the queue. It is stored hashed. */
  key: string
  /**
   * Identifies the request behind the key, such as a hash of its body. Another fingerprint under the key is a conflict.
   */
  fingerprint: string
  /** How long the key is kept, whole ms, default 86,400,000 (24 h), whatever happens to the jobs. */
  ttlMs?: number
}

/** Passed with the jobs through BullMQ's code. */
export interface OnceCall {
  /** The end of the record's Redis key. */
  readonly record: string
  /** Hash of the queue, the key, the fingerprint and the number of jobs. */
  readonly mark: string
  /** Distinguishes this call from others with the same request. */
  readonly call: string
  /** The basis of the ids, if not the mark; the record then stores it. */
  readonly stem: string | undefined
  readonly ttlMs: number
  /** Why these jobs can no longer be added: they are only looked up. */
  readonly refusal: Error | undefined
  answer(answer: OnceAnswer): void
}

export interface OnceAnswer {
  readonly replayed: boolean
  /** Receives the estimate of the first job. */
  readonly estimate: AdmissionEstimate
}

export const DEFAULT_KEY_TTL_MS = 86_400_000
const MAX_KEY_LENGTH = 1024
/** 162 bits. As in `lua/admission/once-record.lua`. */
const HASH_LENGTH = 27
/** 8 characters, as in `lua/admission/once-record.lua`. */
const CALL_BYTES = 6

/** @throws InvalidInputError, whose message omits the key: it may be secret, or huge */
export function checkOnceOptions(options: OnceOptions): void {
  checkCallOptions('addOnce', options, ['key', 'fingerprint', 'ttlMs'])
  const { key, fingerprint, ttlMs } = options
  if (typeof key !== 'string' || key === '' || key.length > MAX_KEY_LENGTH) {
    throw new InvalidInputError(
      `an idempotency key must be a string of 1 to ${MAX_KEY_LENGTH} characters; got ${kindOf(key)}`,
    )
  }
  if (typeof fingerprint !== 'string' || fingerprint === '') {
    throw new InvalidInputError(`fingerprint must be a string that is not empty; got ${kindOf(fingerprint)}`)
  }
  if (ttlMs !== undefined && !(Number.isSafeInteger(ttlMs) && ttlMs > 0)) {
    throw new InvalidInputError(`ttlMs must be a whole number > 0; got ${String(ttlMs)}`)
  }
}

function kindOf(value: unknown): string {
  return typeof value === 'string' ? `${value.length} characters` : typeof value
}

/** A caller's string never goes into a Redis key or a job id unhashed: it could equal one of BullMQ's own names. */
export function recordName(key: string): string {
  return hashOf([key])
}

/** @param base the queue's key prefix */
export function markOf(base: string, { key, fingerprint }: OnceOptions, jobs: number): string {
  return hashOf([base, key, fingerprint, jobs])
}

/** The id of one of the jobs, counted from 0. @param stem basis of the ids, such as the mark */
export function onceJobId(stem: string, index: number): string {
  return `j_${stem}${index === 0 ? '' : `-${index}`}`
}

export function newCallId(): string {
  return randomBytes(CALL_BYTES).toString('base64url')
}

// JSON separates the parts, and keeps lone surrogates distinct, which UTF-8 would all turn into the same character.
function hashOf(parts: readonly (string | number)[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, HASH_LENGTH)
}
