import type { Readable } from 'node:stream'

/** Headers of an answer that are kept: its format, where it points, when to retry, which request it was. */
const KEPT_HEADERS = new Set([
  // A server may compress although it was asked not to: the body is then kept as it arrived.
  ...[
    'content-type',
    'content-encoding',
    'content-language',
    'date',
    'age',
    'last-modified',
    'location',
    'etag',
    'link',
    'retry-after',
  ],
  ...['cf-cache-status', 'x-cache'],
  ...[
    'request-id',
    'x-request-id',
    'x-correlation-id',
    'cf-ray',
    'x-amzn-requestid',
    'x-amz-request-id',
    'x-ms-request-id',
  ],
  ...['x-github-request-id', 'x-trace-id', 'traceparent', 'idempotency-replayed', 'idempotent-replayed'],
  ...['retry-after-ms', 'x-ms-retry-after-ms', 'x-amz-retry-after', 'x-amzn-errortype', 'x-should-retry'],
  ...['stripe-should-retry', 'stripe-rate-limited-reason', 'x-shopify-shop-api-call-limit', 'sforce-limit-info'],
])
/** RateLimit, X-RateLimit-Reset, X-Rate-Limit-Reset, anthropic-ratelimit-requests-reset, x-ms-ratelimit-remaining-… */
const QUOTA_HEADER = /(^|-)rate-?limit(-|$)/

/** The kept headers of an answer; repeated ones are joined by ', '. */
export function keptHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || !(KEPT_HEADERS.has(name) || QUOTA_HEADER.test(name))) continue
    kept[name] = Array.isArray(value) ? value.join(', ') : value
  }
  return kept
}

/** The beginning of a body. */
export interface ReadBody {
  readonly bytes: Buffer
  /** Whether there was more. */
  readonly cut: boolean
}

/**
 * Reads a body up to a number of bytes. If there is more, it is not read, and its connection is closed.
 * @param withinMs read what arrives in this time: a body that breaks off or hangs counts as cut, and nothing is thrown
 */
export async function readBody(stream: Readable, maxBytes: number, withinMs?: number): Promise<ReadBody> {
  const chunks: Buffer[] = []
  let size = 0
  const timer = withinMs === undefined ? undefined : setTimeout(() => stream.destroy(), withinMs)
  const read = (cut: boolean) => ({ bytes: Buffer.concat(chunks).subarray(0, maxBytes), cut })
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      size += chunk.length
      if (size > maxBytes) return read(true)
    }
    return read(false)
  } catch (error) {
    if (withinMs === undefined) throw error
    return read(true)
  } finally {
    clearTimeout(timer)
  }
}

/** A body in the form that is kept. */
export interface KeptBody {
  /** JSON if it is JSON and complete, else text; '' if there is none. Bytes that are not UTF-8 become U+FFFD. */
  readonly body: unknown
  /** Whether it is only the beginning. */
  readonly bodyTruncated: boolean
}

/**
 * Keeps at most `maxChars` characters of a body.
 *
 * @param mask applied to the whole text first, so that no secret is cut in two; `isCut`: whether the text was cut
 * before.
 */
export function keptBody(
  read: ReadBody,
  contentType: string,
  maxChars: number,
  mask: (text: string, isCut: boolean) => string,
): KeptBody {
  const text = mask(new TextDecoder().decode(read.bytes), read.cut)
  const bodyTruncated = read.cut || text.length > maxChars
  const isJson = /^[^;]*[/+]json\s*(;|$)/i.test(contentType)
  return { body: isJson && !bodyTruncated ? parsedOr(text) : text.slice(0, maxChars), bodyTruncated }
}

function parsedOr(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
