import { attempt } from './read.ts'

/** Longer texts are cut, and not parsed: what a refusal says fits into less. */
const MAX_BODY = 65_536

const JSON_TYPE = /\bjson\b/i

/**
 * A body in readable form: objects that a library has parsed as they are, texts (and bytes, as UTF-8) parsed if the
 * content type is JSON. Streams, blobs and anything else that is not a complete answer give undefined, and stay unread.
 */
export function bodyOf(body: unknown, contentType = ''): unknown {
  const text = attempt(() => textOf(body))
  if (text === undefined) return attempt(() => isData(body)) ? body : undefined
  if (!JSON_TYPE.test(contentType) || text.length > MAX_BODY) return text.slice(0, MAX_BODY)
  return attempt(() => JSON.parse(text) as unknown) ?? text
}

function textOf(body: unknown): string | undefined {
  if (typeof body === 'string') return body
  // One byte more than is parsed, so that a longer text is recognised as such.
  if (body instanceof Uint8Array) return Buffer.from(body.subarray(0, MAX_BODY + 1)).toString('utf8')
  return undefined
}

/** Whether JSON.parse could have made it: not an instance of a class. */
function isData(body: unknown): boolean {
  if (typeof body !== 'object' || body === null) return false
  const prototype: unknown = Object.getPrototypeOf(body)
  return Array.isArray(body) || prototype === Object.prototype || prototype === null
}
