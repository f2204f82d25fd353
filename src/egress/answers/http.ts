import type { HttpAnswer } from '../answer.ts'
import { headersOf } from './headers.ts'
import { attempt, read, readText } from './read.ts'

/** The part of an answer that comes from an error of a client. */
interface ErrorTexts {
  readonly text: string
  readonly name: string
  readonly code: string
}

const NOTHING: ErrorTexts = { text: '', name: '', code: '' }

/** The parts of a response, wherever a library keeps them. */
interface Parts {
  readonly status: number
  readonly headers?: unknown
  readonly body?: unknown
  /** Where to look for the request's URL and method, nearest first. */
  readonly around: readonly unknown[]
}

/**
 * The answer in a returned value: a `Response`, `undici.request`'s result, a response of axios, got or Octokit, an
 * output of the AWS SDK. undefined for anything else: a status alone is not a response, headers are needed too.
 */
export function returnedHttpAnswerOf(value: unknown, receivedAtMs: number): HttpAnswer | undefined {
  const parts = responseParts(value) ?? awsParts(value)
  return parts && answer(parts, NOTHING, receivedAtMs)
}

/**
 * The answer in an error: the response that it carries (fetch wrappers, axios, got, Octokit) or that it is (a thrown
 * `Response`), `$metadata` of the AWS SDK, or its own status field (undici, Stripe, OpenAI, Anthropic, http-errors).
 */
export function thrownHttpAnswerOf(error: unknown, receivedAtMs: number): HttpAnswer | undefined {
  const parts = responseParts(read(error, 'response'), error) ?? awsParts(error) ?? ownParts(error)
  if (parts === undefined) return undefined
  const texts = { text: readText(error, 'message'), name: readText(error, 'name'), code: readText(error, 'code') }
  return answer({ ...parts, around: [...parts.around, error] }, texts, receivedAtMs)
}

function answer({ status, headers: given, body, around }: Parts, texts: ErrorTexts, receivedAtMs: number): HttpAnswer {
  const headers = headersOf(given)
  const url = first(around, urlIn)
  const method = first(around, methodIn)
  return {
    protocol: 'http',
    failed: status >= 400 || texts !== NOTHING,
    ...texts,
    status,
    headers,
    body: bodyOf(body, headers['content-type']),
    receivedAtMs,
    ...(url !== '' && { url }),
    ...(method !== '' && { method: method.toUpperCase() }),
  }
}

/** `data` is used by axios and Octokit, and by ky on its error; `body` by got and by `undici.request` (a stream). */
function responseParts(value: unknown, error?: unknown): Parts | undefined {
  const status = statusOf(value)
  const headers = read(value, 'headers')
  if (status === undefined || typeof headers !== 'object' || headers === null) return undefined
  const body = read(value, 'data') ?? read(error, 'data') ?? read(value, 'body')
  return { status, headers, body, around: [value] }
}

/** The SDK has read the body; besides the error's name it only keeps whether the service reported throttling. */
function awsParts(value: unknown): Parts | undefined {
  const status = wholeStatus(read(read(value, '$metadata'), 'httpStatusCode'))
  if (status === undefined) return undefined
  const throttling = read(read(value, '$retryable'), 'throttling') === true
  const body = throttling ? { $retryable: { throttling } } : undefined
  return { status, headers: read(read(value, '$response'), 'headers'), body, around: [] }
}

/**
 * Without headers only a refusal counts: `status: 200` of an error could be anything, and Octokit sets 500 next to its
 * `request` when no response arrived.
 */
function ownParts(error: unknown): Parts | undefined {
  const status = statusOf(error)
  const headers = read(error, 'headers')
  const hasHeaders = typeof headers === 'object' && headers !== null
  if (status === undefined || (!hasHeaders && (status < 400 || read(error, 'request') !== undefined))) return undefined
  return { status, headers, body: read(error, 'body') ?? parsedError(error), around: [] }
}

/** OpenAI's `error` and Stripe's `raw` are the body's member `error`; Anthropic's `error` is the whole body. */
function parsedError(error: unknown): unknown {
  const parsed = read(error, 'error') ?? read(error, 'raw')
  if (typeof parsed !== 'object' || parsed === null) return undefined
  return typeof read(parsed, 'error') === 'object' ? parsed : { error: parsed }
}

function statusOf(value: unknown): number | undefined {
  return wholeStatus(read(value, 'status')) ?? wholeStatus(read(value, 'statusCode'))
}

function wholeStatus(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 100 && value <= 599 ? value : undefined
}

function first(around: readonly unknown[], find: (one: unknown) => string): string {
  for (const one of around) {
    const found = find(one)
    if (found !== '') return found
  }
  return ''
}

/** fetch and got have `url`; axios has the URL after redirects in its request, and the one before them in `config`. */
export function urlIn(value: unknown): string {
  const request = read(value, 'request')
  const found = readText(value, 'url') || readText(read(request, 'res'), 'responseUrl') || readText(request, 'url')
  return /^https?:\/\//i.test(found) ? found : ''
}

function methodIn(value: unknown): string {
  return (
    readText(read(value, 'request'), 'method') ||
    readText(read(value, 'config'), 'method') ||
    readText(read(value, 'options'), 'method')
  )
}

/** Longer bodies are cut, and not parsed: refusals are shorter. */
const MAX_BODY = 65_536

const JSON_TYPE = /\bjson\b/i

/**
 * A body in readable form: objects that a library has parsed as they are, strings (and bytes, as UTF-8) parsed if the
 * content type is JSON. Streams, blobs and anything else that is not a complete answer give undefined, and stay unread.
 */
function bodyOf(body: unknown, contentType = ''): unknown {
  const text = attempt(() => textOf(body))
  if (text === undefined) return attempt(() => isData(body)) ? body : undefined
  if (!JSON_TYPE.test(contentType) || text.length > MAX_BODY) return text.slice(0, MAX_BODY)
  return attempt(() => JSON.parse(text) as unknown) ?? text
}

function textOf(body: unknown): string | undefined {
  if (typeof body === 'string') return body
  // One byte more than the parsed maximum, so that a longer text is recognised as such.
  if (body instanceof Uint8Array) return Buffer.from(body.subarray(0, MAX_BODY + 1)).toString('utf8')
  return undefined
}

/** Whether JSON.parse could have made it: not an instance of a class. */
function isData(body: unknown): boolean {
  if (typeof body !== 'object' || body === null) return false
  const prototype: unknown = Object.getPrototypeOf(body)
  return Array.isArray(body) || prototype === Object.prototype || prototype === null
}
