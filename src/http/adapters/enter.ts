import { BodyTooLargeError, CallerGoneError } from '../body.ts'
import type { Answer, Door, Entry, HttpRequest } from '../door.ts'
import { problemAnswer } from '../responses/problem.ts'
import { NodeRequest } from './node-request.ts'

/** For a caller that has disconnected: it is never read, but logs show it. (NGINX: 499 client closed request) */
export const GONE: Answer = { status: 499, headers: {} }

export interface AdapterOptions {
  /** The longest body that a door may read. Bytes, default 1 MiB. */
  readonly maxBodyBytes?: number
}

/** Enters a door; answers overlong bodies, disconnected callers and requests with several Host fields itself. */
export async function enter(door: Door, request: HttpRequest): Promise<Entry> {
  if (request instanceof NodeRequest && request.hasSeveralHosts) return { answer: severalHosts() }
  try {
    return await door.enter(request)
  } catch (error) {
    if (error instanceof CallerGoneError) return { answer: GONE }
    if (error instanceof BodyTooLargeError) return { answer: tooLarge(error) }
    throw error
  }
}

/** RFC 9112, section 3.2: the target of the request is unclear, and where the next one begins can not be trusted. */
function severalHosts(): Answer {
  const detail = 'The request has several Host fields.'
  return problemAnswer({ status: 400, kind: 'about:blank', detail, headers: { connection: 'close' } })
}

/** Closes the connection: otherwise the rest of the body would have to be read before the next request. */
function tooLarge(error: BodyTooLargeError): Answer {
  const headers = { connection: 'close' }
  return problemAnswer({ status: 413, kind: 'about:blank', detail: error.message, headers })
}
