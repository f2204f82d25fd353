import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import { parseItem } from 'structured-headers'
import { BodyTooLargeError } from '../body.ts'
import type { HttpRequest, HttpResponse, Identity } from '../middleware.ts'
import { ProblemError } from '../responses/problem.ts'
import { rateLimitFields } from '../responses/rate-limit-fields.ts'
import type { Admitted, GatewayQueue } from './gateway-queue.ts'
import type { Once } from './job-id.ts'
import type { NewJob } from './job-items.ts'
import { endedResponse, jsonResponse } from './job-routes.ts'
import { isHeader } from './options.ts'

/**
 * Admits the jobs of a request: 202, or 200 with the outcome if the caller asked to wait.
 * @throws ProblemError, BodyTooLargeError, CallerGoneError and what `add` of the queue throws
 */
export async function postJobs(request: HttpRequest, queue: GatewayQueue): Promise<HttpResponse> {
  checkMedia(request)
  const { idempotency, maxBodyBytes, maxDepth } = queue.rule
  const key = readIdempotencyKey(request.header('idempotency-key'), idempotency === 'required')
  // A repeated request is recognised by its key, however full the queue is now.
  if (key === undefined) queue.refuseIfFull()
  // A body announced as too long is not read.
  checkLength(Number(request.header('content-length') ?? 0), maxBodyBytes)
  const bytes = await request.body()
  checkLength(bytes.byteLength, maxBodyBytes)
  const body = parseJson(bytes, maxDepth)
  const jobs = queue.items.read(body, request)
  const once = key === undefined ? undefined : onceOf(request, key, bytes, namesInHeader(queue, jobs))
  const admitted = await queue.admit(jobs, request.identity, once)
  const isOne = !Array.isArray(body)
  const waitS = isOne ? waitSeconds(request, queue) : 0
  const response = waitS > 0 ? await ended(request, queue, admitted, waitS) : undefined
  return response ?? accepted(queue, jobs, admitted, isOne)
}

function checkLength(bytes: number, maxBodyBytes: number): void {
  if (bytes > maxBodyBytes) throw new BodyTooLargeError(maxBodyBytes)
}

/** How long the caller asks to wait for the end of its job, as far as the rule allows. */
function waitSeconds(request: HttpRequest, { rule }: GatewayQueue): number {
  const wanted = preferredWaitS(request.header('prefer'))
  return Math.min(wanted ?? 0, Math.floor(rule.maxWaitMs / 1000))
}

/** The response if the job ends within the wait; undefined if it takes longer. */
async function ended(request: HttpRequest, queue: GatewayQueue, { ids, replayed }: Admitted, waitS: number) {
  const [id] = ids as [string]
  const ending = await queue.awaitEnding(id, waitS * 1000, request.signal)
  if (!ending) return undefined
  const response = endedResponse(id, ending, waitS)
  return replayed ? { ...response, headers: { ...response.headers, ...REPLAYED } } : response
}

const REPLAYED = { 'idempotency-replayed': 'true' }

async function accepted(
  queue: GatewayQueue,
  jobs: readonly NewJob[],
  admitted: Admitted,
  isOne: boolean,
): Promise<HttpResponse> {
  const { ids, position, replayed } = admitted
  const unknown = queue.meterForFields.refresh()
  if (unknown) await unknown
  const start = admitted.startsAt ?? (position === undefined ? undefined : queue.meterForFields.startsAt(position))
  const states = replayed ? await Promise.all(ids.map((id) => placeOf(queue, id))) : jobs.map(stateOf)
  // A time beyond the range of Date becomes null.
  const startsAt = start?.toJSON()
  const added = ids.map((id, i) => (i === 0 ? { id, state: states[i], position, startsAt } : { id, state: states[i] }))
  const headers = rateLimitFields(queue.meterForFields.policies(), queue.headerForms)
  if (replayed) Object.assign(headers, REPLAYED)
  if (isOne) headers.location = `${queue.jobsPath}/${ids[0]}`
  return jsonResponse(202, isOne ? added[0] : { jobs: added }, headers)
}

/** The state of a job that was just admitted. */
function stateOf({ opts }: NewJob): string {
  if (opts.delay) return 'delayed'
  return opts.priority || opts.group ? 'prioritized' : 'waiting'
}

/** A job of an earlier request may be in any state, or gone. */
async function placeOf(queue: GatewayQueue, id: string): Promise<string> {
  const place = await queue.locate(id)
  return place?.state ?? 'removed'
}

const JSON_TYPE = /^application\/json\s*(?:;\s*charset\s*=\s*(?:utf-8|"utf-8")\s*)?$/i

/**
 * @throws ProblemError 415 for all but uncompressed JSON in UTF-8: a compressed body may be a thousand times longer
 */
function checkMedia(request: HttpRequest): void {
  const coding = request.header('content-encoding')?.trim().toLowerCase()
  if (coding !== undefined && coding !== 'identity') {
    throw new ProblemError(415, 'The body must come without a content coding.', {
      headers: { 'accept-encoding': 'identity' },
    })
  }
  if (JSON_TYPE.test(request.header('content-type')?.trim() ?? '')) return
  throw new ProblemError(415, 'The body must be application/json in UTF-8.', {
    headers: { 'accept-post': 'application/json' },
  })
}

const WAIT = /(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;[^,]*)?(?:,|$)/i

/** `Prefer: wait=n`: how long the caller asks to wait for the result, seconds; the first one counts. (RFC 7240) */
export function preferredWaitS(field: string | undefined): number | undefined {
  const [, seconds] = WAIT.exec(field ?? '') ?? []
  return seconds === undefined ? undefined : Number(seconds)
}

const MAX_LENGTH = 128
/** What many clients send instead of a quoted String: a UUID, a ULID. */
const BARE = /^[\w.~+/=:-]+$/

/**
 * The field Idempotency-Key: a String of RFC 9651 (draft-ietf-httpapi-idempotency-key-header-07, section 2.1), at most
 * 128 characters. The same characters without quotes are the same key, since many clients send it that way.
 * @throws ProblemError 400
 */
function readIdempotencyKey(field: string | undefined, required: boolean): string | undefined {
  if (field === undefined) {
    if (!required) return undefined
    throw new ProblemError(400, 'This queue needs an Idempotency-Key, such as "8e03978e-40d5-43dd-bc93-6894a57f9324".')
  }
  const key = BARE.test(field) ? field : stringOf(field)
  if (key !== undefined && key.length >= 1 && key.length <= MAX_LENGTH) return key
  throw new ProblemError(400, `The Idempotency-Key is not one String of RFC 9651 with 1 to ${MAX_LENGTH} characters.`)
}

function onceOf({ identity }: HttpRequest, key: string, body: Uint8Array, names: readonly string[]): Once {
  return { key: scopedKey(identity, key), fingerprint: fingerprintOf(body, names) }
}

/** The group and the keys that fields of the request name: the body does not say them. '' for one that is missing. */
function namesInHeader({ rule: { group, keys } }: GatewayQueue, [first]: readonly NewJob[]): string[] {
  const named = Object.entries(keys).flatMap(([name, rule]) =>
    isHeader(rule) ? [`${first?.opts.keys?.[name] ?? ''}`] : [],
  )
  return isHeader(group) ? [first?.opts.group?.id ?? '', ...named] : named
}

/** A caller's key as it is stored in Redis: equal keys of two callers are unrelated. */
export function scopedKey(identity: Identity | undefined, key: string): string {
  // JSON keeps the parts apart.
  return sha256(JSON.stringify([identity?.name ?? null, key]))
}

/** Identifies the content of a request, byte for byte. @param names of its jobs that the body does not say */
export function fingerprintOf(body: Uint8Array, names: readonly string[] = []): string {
  return names.length === 0 ? sha256(body) : sha256(JSON.stringify([sha256(body), ...names]))
}

function stringOf(field: string): string | undefined {
  try {
    const [value] = parseItem(field)
    return typeof value === 'string' ? value : undefined
  } catch {
    return undefined
  }
}

function sha256(bytes: string | Uint8Array): string {
  return createHash('sha256').update(bytes).digest('base64url')
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const [OPENING_BRACKET, OPENING_BRACE] = [0x5b, 0x7b]
const [CLOSING_BRACKET, CLOSING_BRACE] = [0x5d, 0x7d]

/**
 * Parses JSON from untrusted clients. Refuses what would be misread or would harm a later reader: bytes that are not
 * UTF-8, values nested too deeply, keys that could pollute prototypes, numbers that overflow to Infinity. Numbers are
 * read as doubles, and the last of duplicate keys counts; I-JSON (RFC 7493) has no larger numbers and no duplicates.
 * @throws ProblemError 400
 */
function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  // Before parsing: a recursive walk through a deep value would endanger the process, not only the request.
  if (isDeeper(bytes, maxDepth)) throw malformed(`is nested deeper than ${maxDepth} levels`)
  const value = parsed(decoded(bytes))
  checkTree(value)
  return value
}

/** Counts brackets outside of strings. The parser checks whether they match. */
function isDeeper(bytes: Uint8Array, maxDepth: number): boolean {
  let depth = 0
  let inString = false
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] as number
    if (inString) {
      if (byte === BACKSLASH) i++
      else if (byte === QUOTE) inString = false
    } else if (byte === QUOTE) inString = true
    else if (byte === OPENING_BRACE || byte === OPENING_BRACKET) {
      if (++depth > maxDepth) return true
    } else if (byte === CLOSING_BRACE || byte === CLOSING_BRACKET) depth--
  }
  return false
}

/** Keeps a byte order mark, which the parser then refuses. (RFC 8259, section 8.1) */
function decoded(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw malformed('is not UTF-8')
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's message repeats the input.
    throw malformed('is not JSON')
  }
}

function checkTree(root: unknown): void {
  const left: unknown[] = [root]
  while (left.length > 0) {
    const value = left.pop()
    if (typeof value === 'number' && !Number.isFinite(value)) throw malformed('has a number that is out of range')
    if (typeof value !== 'object' || value === null) continue
    if (!Array.isArray(value)) checkKeys(value)
    for (const inner of Object.values(value)) left.push(inner)
  }
}

function checkKeys(value: object): void {
  if (Object.hasOwn(value, '__proto__')) throw malformed("has a key '__proto__'")
  if (!Object.hasOwn(value, 'constructor')) return
  const { constructor: inner } = value as { constructor: unknown }
  if (typeof inner === 'object' && inner !== null && Object.hasOwn(inner, 'prototype')) {
    throw malformed("has a key 'constructor' with a 'prototype'")
  }
}

function malformed(what: string): ProblemError {
  return new ProblemError(400, `The body ${what}.`)
}
