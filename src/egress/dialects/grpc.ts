import type { Feedback } from '../../feedback/feedback.ts'
import type { HttpAnswer } from '../answer.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { clampReset } from '../signals/reset.ts'
import type { Wait } from '../signals/wait.ts'
import { fatal, pauseFor, pauseUnknown, retryJob } from './build-feedback.ts'
import { broken, unreachable } from './connection.ts'
import type { HttpDialect } from './dialect.ts'
import { feedbackOfStatus } from './http.ts'
import { ok } from './quota-feedback.ts'

const PUSHBACK = 'grpc-retry-pushback-ms'
const TOO_MANY_REQUESTS = 429
const OK = 0
const RESOURCE_EXHAUSTED = 8
/** The service, or the path to it, is down. */
const UNAVAILABLE = 14
/** grpc-js's messages about a call that was never sent. */
const NEVER_SENT = /No connection established|Name resolution failed/
/** DEADLINE_EXCEEDED, ABORTED, INTERNAL: a retry may succeed. */
const TRANSIENT = [4, 10, 13, UNAVAILABLE]
/** INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED: no retry succeeds. */
const NEVER = [3, 5, 6, 9, 11, 12]

/**
 * gRPC over HTTP, with the trailers `grpc-status` and `grpc-retry-pushback-ms` among the fields: a negative pushback
 * forbids a retry. Without `grpc-status` the HTTP status counts. gRPC A6, client retries; grpc.io, status codes
 */
export const grpcDialect: HttpDialect = (answer) => {
  const code = grpcStatus(answer)
  const isGood = code === undefined ? answer.status < 400 : code === OK
  const pushback = isGood ? undefined : pushbackMs(answer)
  if (pushback !== undefined && pushback < 0)
    return [fatal({ reason: `${PUSHBACK} is negative`, source: 'retry-after' })]
  const wait: Wait | undefined =
    pushback === undefined ? undefined : { ms: clampReset(pushback), name: PUSHBACK, source: 'retry-after' }
  const found = code === undefined ? [] : feedbackOfCode(code, answer, wait)
  // A 429 is a refusal, even if the trailer is not.
  if (found.length > 0 || (code !== undefined && answer.status !== TOO_MANY_REQUESTS)) return found
  const signals = readHttpSignals(answer)
  return feedbackOfStatus(answer, wait ? { ...signals, wait } : signals)
}

function feedbackOfCode(code: number, { status, text }: HttpAnswer, wait: Wait | undefined): readonly Feedback[] {
  const because = { reason: `${status} grpc-status ${code}`, source: 'status' } as const
  if (code === OK) return [ok(status)]
  if (code === RESOURCE_EXHAUSTED) return [wait ? pauseFor(status, wait) : pauseUnknown(because, true)]
  if (NEVER.includes(code)) return [fatal(because)]
  // A given time applies to this call only. Without one, the call may have been processed, by the code's definition.
  if (code === UNAVAILABLE && !wait) {
    return [NEVER_SENT.test(text) ? unreachable(because) : { ...broken(because), about: 'destination' }]
  }
  return TRANSIENT.includes(code) || wait ? [retryJob(because, wait)] : []
}

/** A call that failed by its HTTP status did not succeed. */
function grpcStatus(answer: HttpAnswer): number | undefined {
  const text = field(answer, 'grpc-status') ?? ''
  const code = /^\d{1,2}$/.test(text) ? Number(text) : undefined
  return code === OK && answer.status >= 400 ? undefined : code
}

function pushbackMs(answer: HttpAnswer): number | undefined {
  const text = field(answer, PUSHBACK) ?? ''
  return /^-?\d{1,15}$/.test(text) ? Number(text) : undefined
}
