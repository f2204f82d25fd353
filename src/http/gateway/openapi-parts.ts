/** The parts that the description of every queue refers to. */

/** A part of a description. */
export type Node = Readonly<Record<string, unknown>>

const text = { type: 'string' }
const whole = { type: 'integer', minimum: 0 }
const instant = { type: 'string', format: 'date-time' }

export function schemas(states: readonly string[]): Node {
  const job = (more: readonly string[] = []) => ({
    type: 'object',
    properties: {
      id: text,
      state: { enum: [...states, ...more] },
      position: { ...whole, description: 'Jobs ahead of it, where that is known.' },
      startsAt: { ...instant, description: 'When it will start, as far as is known now.' },
    },
    required: ['id', 'state'],
  })
  const replayable = job(['removed'])
  const several = { type: 'object', properties: { jobs: { type: 'array', items: replayable } }, required: ['jobs'] }
  return {
    Job: job(),
    Accepted: { oneOf: [replayable, several] },
    Result: {
      type: 'object',
      properties: { result: { description: 'What a completed job returned.' }, failedReason: text },
    },
    Meter: METER,
    Problem: PROBLEM,
  }
}

const METER = {
  type: 'object',
  properties: {
    at: instant,
    depth: { ...whole, description: 'Jobs that hold a place.' },
    capacity: whole,
    waiting: whole,
    delayed: whole,
    active: whole,
    refusedTotal: whole,
    rate: { type: 'string', description: "The rate in force, such as '50/s'." },
    burst: { type: 'number' },
    level: { type: 'number', description: 'Units of cost that the bucket holds.' },
    cause: { type: 'string', description: 'Why the rate is that.' },
    nextDepartureAt: instant,
    paused: { type: 'boolean' },
    pausedUntil: instant,
  },
  required: ['at', 'depth', 'waiting', 'delayed', 'active', 'refusedTotal', 'level', 'cause', 'paused'],
}

const PROBLEM = {
  type: 'object',
  description: 'RFC 9457.',
  properties: {
    type: text,
    title: text,
    status: whole,
    detail: text,
    instance: text,
    errors: {
      type: 'array',
      items: { type: 'object', properties: { pointer: text, detail: text }, required: ['pointer', 'detail'] },
    },
    retryAfterMs: whole,
    retry_after: whole,
    'violated-policies': { type: 'array', items: text },
    limit: whole,
    remaining: whole,
  },
  required: ['type', 'title', 'status', 'detail'],
}

export const headers = {
  Location: { description: 'The job, where it is one.', schema: text },
  'Retry-After': { description: 'When to come again, seconds.', schema: whole },
  RateLimit: { description: 'draft-ietf-httpapi-ratelimit-headers-10: the places that are left.', schema: text },
  'RateLimit-Policy': { description: 'The capacity of the queue, and the rate at which it drains.', schema: text },
  'Idempotency-Replayed': {
    description: 'There where an earlier request brought the jobs.',
    schema: { const: 'true' },
  },
  'Preference-Applied': { description: 'RFC 7240.', schema: text },
  Allow: { schema: text },
}

/** References to header fields. */
export function header(...names: (keyof typeof headers)[]): Node {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))
}

export const parameters = {
  IdempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    required: false,
    description: 'A String of RFC 9651, up to 128 characters. The same request with the same key adds nothing.',
    schema: text,
  },
  Prefer: {
    name: 'Prefer',
    in: 'header',
    description: 'RFC 7240: wait=n holds the answer up to n seconds for the result of one job.',
    schema: text,
  },
  JobId: { name: 'id', in: 'path', required: true, schema: text },
}

const refusal = (description: string, ...names: (keyof typeof headers)[]) => ({
  description,
  headers: header(...names),
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
})

/** By status. */
export const responses = {
  400: refusal('The body is no sound JSON, or the Idempotency-Key is missing or malformed.'),
  403: refusal('The queue is not for this caller.'),
  404: refusal('There is no such job.'),
  409: refusal('The job runs or has ended; or the first request with this Idempotency-Key is not answered yet.'),
  413: refusal('The body is too long, or has too many jobs.'),
  415: refusal('The body is not application/json, or is compressed.'),
  422: refusal('The jobs do not meet the schema, or can never run; or the Idempotency-Key stands for another request.'),
  429: refusal(
    'The queue is full, or the job could not start in time.',
    'Retry-After',
    'RateLimit',
    'RateLimit-Policy',
  ),
  503: refusal('Redis can not be reached, or can not serve now.', 'Retry-After'),
} as const
