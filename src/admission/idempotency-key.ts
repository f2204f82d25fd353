import { createHash, randomBytes } from 'node:crypto'
import { checkCallOptions } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { AdmissionEstimate } from './reply.ts'

/** Under this key the options of the first of some jobs carry what they are added once for. */
export const ONCE = Symbol('sluice.once')

/** Under this key the options of `addOnce` may carry what ids are made of: 27 characters, the same for the same request. */
export const STEM = Symbol('sluice.stem')

/** By what a call is known when it comes again. */
export interface OnceOptions {
  /** The caller's key, 1 to 1024 characters of any kind; the queue is its name space. It is stored hashed. */
  key: string
  /** What is asked for with the key, such as a hash of the request's body. Anything else under the key is a conflict. */
  fingerprint: string
  /** How long the key is kept, whole ms, default 86,400,000 (24 h), whatever becomes of the jobs. */
  ttlMs?: number
}

/** What jobs that are added once carry through BullMQ's code. */
export interface OnceCall {
  /** The end of the record's Redis key. */
  readonly record: string
  /** Stands for the key, the fingerprint and the number of jobs. */
  readonly mark: string
  /** This call, told from others that ask the same. */
  readonly call: string
  /** What the ids are made of, where that is not the mark: then the record keeps them. */
  readonly stem: string | undefined
  readonly ttlMs: number
  /** Why these jobs can not be added any more: they are only looked up. */
  readonly refusal: Error | undefined
  answer(answer: OnceAnswer): void
}

export interface OnceAnswer {
  readonly replayed: boolean
  /** Of the first job. */
  readonly estimate: AdmissionEstimate
}

export const DEFAULT_KEY_TTL_MS = 86_400_000
const MAX_KEY_LENGTH = 1024
/** 162 bits. As in `lua/lib/once.lua`. */
const HASH_LENGTH = 27
/** 8 characters, as there. */
const CALL_BYTES = 6

/** @throws InvalidInputError; it does not repeat the key, which may be a secret, or huge */
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

/** A caller's string never gets into a Redis key or a job's id by itself: it could be one of BullMQ's own. */
export function recordName(key: string): string {
  return hashOf([key])
}

/** @param base the queue's key prefix */
export function markOf(base: string, { key, fingerprint }: OnceOptions, jobs: number): string {
  return hashOf([base, key, fingerprint, jobs])
}

/** The id of one of the jobs, from 0. @param stem what they are made of, such as the mark */
export function onceJobId(stem: string, index: number): string {
  return `j_${stem}${index === 0 ? '' : `-${index}`}`
}

export function newCallId(): string {
  return randomBytes(CALL_BYTES).toString('base64url')
}

// JSON keeps the parts apart, and lone surrogates too, which all are one character in UTF-8.
function hashOf(parts: readonly (string | number)[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, HASH_LENGTH)
}
