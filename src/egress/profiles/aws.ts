import type { HttpAnswer } from '../answer.ts'
import { type Because, pauseFor, retryJob, slowDown } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { httpDialect } from '../dialects/http.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { shapelessProfile } from './profile.ts'

/** Errors that AWS's SDKs treat as throttling, whatever their status. Source: @smithy/core 3.41, retry. */
const THROTTLING = new Set([
  ...['BandwidthLimitExceeded', 'EC2ThrottledException', 'LimitExceededException', 'PriorRequestNotComplete'],
  ...[
    'ProvisionedThroughputExceededException',
    'RequestLimitExceeded',
    'RequestThrottled',
    'RequestThrottledException',
  ],
  ...['SlowDown', 'ThrottledException', 'Throttling', 'ThrottlingException', 'TooManyRequestsException'],
  'TransactionInProgressException',
])

/**
 * AWS's APIs through the SDK v3: throttling is recognised by the error's name, status 429 or `$retryable`. With a time
 * (`x-amz-retry-after`, `Retry-After`) it is a pause of that length, otherwise a lower rate. The SDK's own retries must
 * be off (`maxAttempts: 1`). Of all other errors only 5xx is read: AWS also answers an expired token with 400, and no
 * job should fail finally because of that.
 */
export const awsDialect: HttpDialect = (answer) => {
  if (!answer.failed) return []
  if (!isThrottled(answer)) return answer.status >= 500 ? httpDialect(answer) : []
  const { wait } = readHttpSignals(answer)
  // A wait of 0 gives no time.
  return wait && wait.ms > 0 ? [pauseFor(answer.status, wait)] : [slowDown(because(answer)), retryJob(because(answer))]
}

function isThrottled({ name, code, status, body }: HttpAnswer): boolean {
  return status === 429 || THROTTLING.has(name) || THROTTLING.has(code) || isRetryableThrottling(body)
}

/** The SDK's own mark, which `answers/` keeps in place of the body. */
function isRetryableThrottling(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || !('$retryable' in body)) return false
  const { $retryable: mark } = body
  return typeof mark === 'object' && mark !== null && 'throttling' in mark && mark.throttling === true
}

function because({ name, code, status }: HttpAnswer): Because {
  const error = [name, code].find((one) => THROTTLING.has(one))
  return { reason: `${status} ${error ?? 'throttled'}`, source: error === undefined ? 'status' : 'error' }
}

export const aws = shapelessProfile('aws', awsDialect)
