import { effectId, VERSION } from 'sluice/internal'
import { InvalidRequestError } from './errors.ts'
import { type Form, fitsForm, isRecord, isText } from './form.ts'
import { readFreeUrl } from './guard.ts'
import type { FetchSettings } from './options.ts'
import { DEFAULT_JOB_HEADERS, readJobHeaders } from './request-headers.ts'
import { IDEMPOTENCY_HEADER, METHODS, type Method, type Query, type Target, urlBelow } from './target.ts'

/** What a job requests: a `target` or, if they are allowed, a `url`; `json`, `text` or neither. */
export interface EgressRequest {
  /** The name of a configured target. */
  readonly target?: string | undefined
  /** Below the target's base URL, starting with one `/`. */
  readonly path?: string | undefined
  readonly query?: Query | undefined
  /** An `https://` URL. */
  readonly url?: string | undefined
  /** Default POST. */
  readonly method?: Method | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** The body as JSON. */
  readonly json?: unknown
  /** The body as text, `text/plain` unless `headers` say otherwise. */
  readonly text?: string | undefined
}

/** The job that a request is sent for, with BullMQ's fields. */
export interface RequestingJob {
  readonly id?: string | undefined
  readonly queueName: string
  /** BullMQ's `prefix`. */
  readonly prefix: string
  readonly timestamp: number
}

/** A checked request, ready to be sent as it is. */
export interface CheckedRequest {
  /** For messages: `POST to target "crm"`. */
  readonly what: string
  readonly method: Method
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | undefined
  /** Whether a job chose the host: then the address must be public. */
  readonly free: boolean
  readonly secrets: readonly string[]
}

type Destination = Omit<Target, 'base'> & Pick<CheckedRequest, 'what' | 'url' | 'free'>

/** Repeating these has no further effect. */
const SAFE_METHODS: readonly Method[] = ['GET', 'HEAD']

const FORM: Form<EgressRequest> = {
  target: ['a text', isText],
  path: ['a text', isText],
  query: ['an object of parameters', isRecord],
  url: ['a text', isText],
  method: ['a text', isText],
  headers: ['an object of texts', isRecord],
  json: ['what JSON can hold', isJson],
  text: ['a text', isText],
}

/** @throws InvalidRequestError naming every field that is wrong */
export function checkRequest(
  settings: FetchSettings,
  request: EgressRequest,
  job: RequestingJob | undefined,
): CheckedRequest {
  const problems: string[] = []
  if (!fitsForm(FORM, request, problems)) throw new InvalidRequestError(problems)
  const { method = 'POST', json, text } = request
  const destination =
    request.url === undefined ? targetOf(settings, request, problems) : urlOf(settings, request, problems)
  if (!destination) throw new InvalidRequestError(problems)
  const { what, url, free, secrets } = destination
  if (!destination.methods.includes(method)) problems.push(`method: expected ${destination.methods.join(', ')}`)
  if (json !== undefined && text !== undefined) problems.push('expected json or text, got both')
  if ((json !== undefined || text !== undefined) && SAFE_METHODS.includes(method)) {
    problems.push(`expected no json and no text with ${SAFE_METHODS.join(' and ')}`)
  }
  const ofJob = readJobHeaders(request.headers ?? {}, destination.jobHeaders, problems)
  if (problems.length > 0) throw new InvalidRequestError(problems)
  const body = json === undefined ? text : JSON.stringify(json)
  const headers = {
    'user-agent': `sluice/${VERSION}`,
    ...(json !== undefined && { 'content-type': 'application/json' }),
    ...(text !== undefined && { 'content-type': 'text/plain; charset=utf-8' }),
    ...ofJob,
    ...destination.headers,
    'accept-encoding': 'identity',
    ...(job && !SAFE_METHODS.includes(method) && { [destination.idempotencyHeader]: idempotencyKey(job) }),
  }
  return { what: `${method} to ${what}`, method, url, headers, body, free, secrets }
}

function targetOf(settings: FetchSettings, request: EgressRequest, problems: string[]): Destination | undefined {
  const { target: name = '', path = '', query = {} } = request
  const target = settings.targets.get(name)
  if (target)
    return { ...target, what: `target "${name}"`, url: urlBelow(target.base, path, query, problems), free: false }
  const names = [...settings.targets.keys()].map((known) => `"${known}"`)
  problems.push(names.length > 0 ? `target: expected ${names.join(' or ')}` : 'expected a url')
  return undefined
}

function urlOf(settings: FetchSettings, request: EgressRequest, problems: string[]): Destination | undefined {
  if (!settings.allowUrls) problems.push('url: expected a target: URLs are not allowed here')
  else if (request.target !== undefined || request.path !== undefined || request.query !== undefined) {
    problems.push('expected a url or a target with its path and query, got both')
  }
  const url = problems.length === 0 ? readFreeUrl(request.url ?? '', settings.urlPorts, problems) : undefined
  if (!url) return undefined
  return {
    ...{ what: url.origin, url, free: true, headers: {}, secrets: [], methods: METHODS },
    ...{ jobHeaders: new Set(DEFAULT_JOB_HEADERS), idempotencyHeader: IDEMPOTENCY_HEADER },
  }
}

/** Excludes big integers, functions, symbols and cycles. */
function isJson(value: unknown): boolean {
  try {
    return JSON.stringify(value) !== undefined
  } catch {
    return false
  }
}

/** The same for every attempt of a job, and for no other job. */
function idempotencyKey({ prefix, queueName, id = '', timestamp }: RequestingJob): string {
  return effectId({ prefix, queueName, jobId: id, timestamp })
}
