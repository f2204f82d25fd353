import {
  type EgressAnswer,
  type EgressFetch,
  type EgressRequest,
  InvalidRequestError,
  METHODS,
  type RequestingJob,
} from 'sluice-fetch'
import { InvalidPayloadError } from 'sluice-programs'
import { z } from 'zod'
import { unrecoverable } from '../unrecoverable.ts'

const queryValue = z.union([z.string(), z.number(), z.boolean()])

const requestSchema = z.strictObject({
  target: z.string().optional(),
  path: z.string().optional(),
  query: z.record(z.string(), z.union([queryValue, z.array(queryValue)])).optional(),
  url: z.string().optional(),
  method: z.enum(METHODS).optional(),
  headers: z.record(z.string(), z.string()).optional(),
  json: z.unknown().optional(),
  text: z.string().optional(),
})

/** The data of an HTTP job: a request to a named target, or to a URL where they are allowed. */
export type HttpRequest = z.input<typeof requestSchema>

/** The part of a BullMQ job that sending needs. */
export interface HttpJob extends RequestingJob {
  readonly data: unknown
}

/**
 * Builds the processor of HTTP jobs: one attempt each, whose answer is the result.
 *
 * It throws BullMQ's `UnrecoverableError` for data that cannot be sent (cause `InvalidPayloadError`) and
 * `HttpResponseError` for an answer that is not 2xx; any other error is rethrown. The worker's feedback decides which
 * answers are final and which are retried.
 */
export function createHttpProcessor(fetch: EgressFetch) {
  return async (job: HttpJob): Promise<EgressAnswer> => {
    const request = readRequest(job.data)
    try {
      return await fetch(request, { job })
    } catch (error) {
      throw error instanceof InvalidRequestError ? refusal(error.problems) : error
    }
  }
}

function readRequest(data: unknown): EgressRequest {
  const parsed = requestSchema.safeParse(data)
  if (parsed.success) return parsed.data
  throw refusal(parsed.error.issues.map(describeIssue))
}

function refusal(problems: readonly string[]): Error {
  return unrecoverable(new InvalidPayloadError('the request', problems))
}

// Only the top field: deeper keys are chosen by the job.
function describeIssue(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') {
    return `expected only ${Object.keys(requestSchema.shape).join(', ')}, got ${issue.keys.length} other field(s) as well`
  }
  const [field] = issue.path
  return field === undefined ? issue.message : `${String(field)}: ${issue.message}`
}
