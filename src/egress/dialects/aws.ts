import type { HttpAnswer } from '../answer.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import type { HttpDialect } from './dialect.ts'
import { httpDialect } from './http.ts'
import { type Because, pauseFor, retryJob, slowDown } from './said.ts'

/** The errors that AWS's SDKs count as throttling, whatever status they come with. Source: @smithy/core 3.41, retry. */
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
 * AWS's APIs through the SDK v3: throttling by the error's name, status 429 or `$retryable`. With a time
 * (`x-amz-retry-after`, `Retry-After`) a pause of that length, else a lower rate. The SDK's own retries have to be off
 * (`maxAttempts: 1`). Of the rest only 5xx is read: 400 is also what AWS answers to an expired token, and no job has to
 * fail for good over that.
 */
export const awsDialect: HttpDialect = (answer) => {
  if (!answer.failed) return []
  if (!isThrottled(answer)) return answer.status >= 500 ? httpDialect(answer) : []
  const { wait } = readHttpSignals(answer)
  // No time at all is no answer to how long.
  return wait && wait.ms > 0 ? [pauseFor(answer.status, wait)] : [slowDown(because(answer)), retryJob(because(answer))]
}

function isThrottled({ name, code, status, body }: HttpAnswer): boolean {
  return status === 429 || THROTTLING.has(name) || THROTTLING.has(code) || isRetryableThrottling(body)
}

/** The SDK's own mark, which `answers/` keeps in the place of the body. */
function isRetryableThrottling(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || !('$retryable' in body)) return false
  const { $retryable: mark } = body
  return typeof mark === 'object' && mark !== null && 'throttling' in mark && mark.throttling === true
}

function because({ name, code, status }: HttpAnswer): Because {
  const error = [name, code].find((one) => THROTTLING.has(one))
  return { reason: `${status} ${error ?? 'throttled'}`, source: error === undefined ? 'status' : 'error' }
}
