import { type Form, fitsForm, isListOf, isRecord, isText } from './form.ts'
import { DEFAULT_JOB_HEADERS, isForJobs, isForTargets, isHeaderValue } from './request-headers.ts'

export const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

export type Method = (typeof METHODS)[number]

/** The value of a header from an environment variable: a secret, which is only referred to by that name. */
export interface SecretHeader {
  readonly env: string
  /** Precedes it, such as `Bearer `. */
  readonly prefix?: string | undefined
}

/** Where jobs may send requests, and what is added to them. */
export interface TargetConfig {
  /** `https://` or `http://` URL without credentials, query and fragment. Jobs can only reach what is below it. */
  readonly baseUrl: string
  /** Headers of every request. They are trusted; jobs cannot change them. */
  readonly headers?: Readonly<Record<string, string | SecretHeader>> | undefined
  /** The headers that jobs may set; default: `accept`, `content-type`, the conditional ones, languages and `prefer`. */
  readonly jobHeaders?: readonly string[] | undefined
  /** The methods that jobs may use; default: all. */
  readonly methods?: readonly Method[] | undefined
  /** The header that carries the idempotency key; default `idempotency-key`. */
  readonly idempotencyHeader?: string | undefined
}

/** A checked target, with its secrets in place. */
export interface Target {
  readonly base: URL
  readonly headers: Readonly<Record<string, string>>
  readonly jobHeaders: ReadonlySet<string>
  readonly methods: readonly Method[]
  readonly idempotencyHeader: string
  readonly secrets: readonly string[]
}

export const IDEMPOTENCY_HEADER = 'idempotency-key'

const BASE_URL = 'an http:// or https:// URL without credentials, query and fragment'
const HEADER_VALUE = 'a text, or { env } for a secret, perhaps with a prefix'

const FORM: Form<TargetConfig> = {
  baseUrl: [BASE_URL, isText],
  headers: [`an object of names and values: ${HEADER_VALUE}`, isRecord],
  jobHeaders: ['a list of header names', isListOf(isText)],
  methods: [`a list of ${METHODS.join(', ')}`, isListOf((value) => METHODS.includes(value as Method))],
  idempotencyHeader: ['a header name', isText],
}
const SECRET_FORM: Form<SecretHeader> = { env: ['a name', isText], prefix: ['a text', isText] }

/** Checks the configuration of a target and reads its secrets. Problems are added to `problems`. */
export function readTarget(config: TargetConfig, env: NodeJS.ProcessEnv, problems: string[]): Target | undefined {
  if (!fitsForm(FORM, config, problems)) return undefined
  const base = readBaseUrl(config.baseUrl)
  if (!base) problems.push(`baseUrl: expected ${BASE_URL}`)
  const idempotencyHeader = (config.idempotencyHeader ?? IDEMPOTENCY_HEADER).toLowerCase()
  if (!isForTargets(idempotencyHeader)) problems.push('idempotencyHeader: expected a header that a target may set')
  const secrets: string[] = []
  const headers: Record<string, string> = {}
  for (const [name, source] of Object.entries(config.headers ?? {})) {
    const problem = headerProblem(name, source, env)
    if (problem) {
      problems.push(`headers: ${name}: ${problem}`)
      continue
    }
    if (typeof source !== 'string') secrets.push(env[source.env] ?? '')
    headers[name.toLowerCase()] = headerValue(source, env)
  }
  const jobHeaders = (config.jobHeaders ?? DEFAULT_JOB_HEADERS).map((name) => name.toLowerCase())
  for (const name of jobHeaders) {
    if (!isForJobs(name)) problems.push(`jobHeaders: ${name}: expected a header that a job may set`)
  }
  if (!base) return undefined
  const settable = jobHeaders.filter((name) => !Object.hasOwn(headers, name) && name !== idempotencyHeader)
  const methods = config.methods ?? METHODS
  return { base, headers, jobHeaders: new Set(settable), methods, idempotencyHeader, secrets }
}

function readBaseUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) return undefined
  return `${url.username}${url.password}${url.search}${url.hash}` === '' ? url : undefined
}

function headerProblem(name: string, source: string | SecretHeader, env: NodeJS.ProcessEnv): string | undefined {
  if (!isForTargets(name.toLowerCase())) return 'expected a header that a target may set'
  if (!isText(source) && !(fitsForm(SECRET_FORM, source, []) && isText(source.env))) return `expected ${HEADER_VALUE}`
  if (!isText(source) && !env[source.env]) return `expected a value in the environment variable ${source.env}`
  return isHeaderValue(headerValue(source, env)) ? undefined : 'expected one line of Latin-1 text'
}

function headerValue(source: string | SecretHeader, env: NodeJS.ProcessEnv): string {
  return typeof source === 'string' ? source : `${source.prefix ?? ''}${env[source.env] ?? ''}`
}

/** Parameters of a query; several with one name are given as an array. */
export type Query = Readonly<Record<string, QueryValue | readonly QueryValue[]>>
type QueryValue = string | number | boolean

const MAX_PATH_CHARACTERS = 4096
const MAX_DECODINGS = 4

/**
 * The URL of a path below a target's base URL. It is concatenated, never resolved: no path can lead out of it.
 *
 * Problems with the path or query are added to `problems`; the URL then stays that of the target.
 */
export function urlBelow(base: URL, path: string, query: Query, problems: string[]): URL {
  const url = new URL(base)
  const problem = pathProblem(path)
  if (problem) problems.push(`path: ${problem}`)
  else if (path !== '') url.pathname = `${base.pathname.replace(/\/$/, '')}${path}`
  for (const [name, values] of Object.entries(query)) {
    for (const value of Array.isArray(values) ? values : [values]) {
      if (['string', 'number', 'boolean'].includes(typeof value)) url.searchParams.append(name, String(value))
      else problems.push('query: expected texts, numbers and booleans, or arrays of them')
    }
  }
  return url
}

function pathProblem(path: string): string | undefined {
  if (path === '') return undefined
  if (path.length > MAX_PATH_CHARACTERS) return `expected at most ${MAX_PATH_CHARACTERS} characters`
  if (!path.startsWith('/') || path.startsWith('//')) return 'expected one / at its start'
  if (/[?#]/.test(path)) return 'expected neither ? nor #: parameters go into query'
  // Servers and proxies decode a path once, twice or not at all: none of its decoded forms must lead out of the base.
  let reading = path
  for (let decodings = 0; decodings <= MAX_DECODINGS; decodings++) {
    if (/[\\\p{Cc}]/u.test(reading)) return 'expected no backslash and no control character'
    if (reading.split('/').some(leadsUp)) return 'expected no segment . or ..'
    const decoded = decodedOnce(reading)
    if (decoded === undefined) return 'expected % only before two hexadecimal digits of UTF-8'
    if (decoded === reading) return undefined
    reading = decoded
  }
  return `expected it to be percent-encoded at most ${MAX_DECODINGS} times`
}

/** Some servers remove parameters from a segment before they interpret it: they read `..;x` as `..`. */
function leadsUp(segment: string): boolean {
  return /^\.\.?(;|$)/.test(segment)
}

function decodedOnce(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
