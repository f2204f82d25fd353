import { validateHeaderName, validateHeaderValue } from 'node:http'

/** Headers that jobs may set if a target does not say which. */
export const DEFAULT_JOB_HEADERS: readonly string[] = [
  'accept',
  'accept-language',
  'content-language',
  'content-type',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-unmodified-since',
  'prefer',
]

/** They belong to the connection and the framing of a message (RFC 9110 §7.6.1): only the HTTP client may set them. */
const OF_THE_CLIENT = new Set([
  // A compressed answer could exceed every bound once it is decompressed.
  'accept-encoding',
  'connection',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/** They identify the caller: a job may have copied them from another caller's request. */
const OF_THE_CALLER = new Set([
  'authorization',
  'cookie',
  'cookie2',
  'forwarded',
  'proxy-authenticate',
  'proxy-authorization',
  'via',
  'www-authenticate',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
  'x-real-ip',
])

/** Whether a target may set a header, or use it for its idempotency keys. */
export function isForTargets(name: string): boolean {
  return isHeaderName(name) && !OF_THE_CLIENT.has(name)
}

/** Whether a target may let jobs set a header. */
export function isForJobs(name: string): boolean {
  return isForTargets(name) && !OF_THE_CALLER.has(name)
}

/** Whether a string can be the value of a header: one line, nothing beyond Latin-1. */
export function isHeaderValue(value: string): boolean {
  return passes(() => validateHeaderValue('x', value))
}

/**
 * The headers of a job, with names in lower case. Problems with them are added to `problems`.
 *
 * @param allowed names in lower case
 */
export function readJobHeaders(
  given: Readonly<Record<string, string>>,
  allowed: ReadonlySet<string>,
  problems: string[],
): Record<string, string> {
  const headers = new Map<string, string>()
  for (const [givenName, value] of Object.entries(given)) {
    const name = givenName.toLowerCase()
    if (!allowed.has(name)) problems.push(`headers: expected only ${[...allowed].join(', ') || 'none'}`)
    else if (headers.has(name)) problems.push(`headers: ${name} is given twice`)
    else if (typeof value !== 'string' || !isHeaderValue(value)) {
      problems.push(`headers: ${name}: expected one line of Latin-1 text`)
    }
    headers.set(name, value)
  }
  return Object.fromEntries(headers)
}

function isHeaderName(name: string): boolean {
  return passes(() => validateHeaderName(name))
}

function passes(validate: () => void): boolean {
  try {
    validate()
    return true
  } catch {
    return false
  }
}
