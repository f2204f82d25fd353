import type { HttpAnswer } from '../answer.ts'
import { headersOf } from './headers.ts'
import { read, readText } from './read.ts'

/** gRPC's codes by number, with the HTTP status that google/rpc/code.proto gives each. */
const CODES: Readonly<Record<number, readonly [name: string, status: number]>> = {
  1: ['CANCELLED', 499],
  2: ['UNKNOWN', 500],
  3: ['INVALID_ARGUMENT', 400],
  4: ['DEADLINE_EXCEEDED', 504],
  5: ['NOT_FOUND', 404],
  6: ['ALREADY_EXISTS', 409],
  7: ['PERMISSION_DENIED', 403],
  8: ['RESOURCE_EXHAUSTED', 429],
  9: ['FAILED_PRECONDITION', 400],
  10: ['ABORTED', 409],
  11: ['OUT_OF_RANGE', 400],
  12: ['UNIMPLEMENTED', 501],
  13: ['INTERNAL', 500],
  14: ['UNAVAILABLE', 503],
  15: ['DATA_LOSS', 500],
  16: ['UNAUTHENTICATED', 401],
}

/** The answer in a ServiceError of @grpc/grpc-js: `code`, `details` and `metadata` serve as status and headers. */
export function grpcAnswerOf(error: unknown, receivedAtMs: number): HttpAnswer | undefined {
  const code = read(error, 'code')
  const metadata = read(error, 'metadata')
  if (typeof code !== 'number' || !Object.hasOwn(CODES, code)) return undefined
  if (typeof read(error, 'details') !== 'string' || typeof read(metadata, 'getMap') !== 'function') return undefined
  const [name, status] = CODES[code] as readonly [string, number]
  return {
    protocol: 'http',
    failed: true,
    text: readText(error, 'message'),
    name: readText(error, 'name'),
    code: name,
    status,
    // grpc-js does not expose this trailer.
    headers: { ...headersOf(metadata), 'grpc-status': String(code) },
    receivedAtMs,
  }
}
