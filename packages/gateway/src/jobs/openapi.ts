import { itemSchema } from './job-items.ts'
import { JOB_STATES } from './job-place.ts'
import type { ResolvedOptions, ResolvedRule } from './options.ts'

/** A part of the description. */
type Node = Readonly<Record<string, unknown>>

const text = { type: 'string' }
const whole = { type: 'integer', minimum: 0 }
const instant = { type: 'string', format: 'date-time' }

function schemas(states: readonly string[]): Node {
  const job = (more: readonly string[] = []) => ({
    type: 'object',
    properties: {
      id: text,
      state: { enum: [...states, ...more] },
      position: { ...whole, description: 'Jobs ahead of it, if known.' },
      startsAt: { ...instant, description: 'Estimated start, if known.' },
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
    cause: { type: 'string', description: 'What sets this rate.' },
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

const headers = {
  Location: { description: 'The job, if there is only one.', schema: text },
  'Retry-After': { description: 'When to retry, seconds.', schema: whole },
  RateLimit: { description: 'draft-ietf-httpapi-ratelimit-headers-10: the places that are left.', schema: text },
  'RateLimit-Policy': { description: 'The capacity of the queue, and the rate at which it drains.', schema: text },
  'Idempotency-Replayed': {
    description: 'Present if an earlier request already added the jobs.',
    schema: { const: 'true' },
  },
  'Preference-Applied': { description: 'RFC 7240.', schema: text },
  Allow: { schema: text },
}

/** References to the described header fields. */
function header(...names: (keyof typeof headers)[]): Node {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))
}

const parameters = {
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
    description: 'RFC 7240: wait=n delays the response by up to n seconds, until the result of one job is known.',
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
const responses = {
  400: refusal('The body is not valid JSON, or the Idempotency-Key is missing or malformed.'),
  403: refusal('The caller has no access to this queue.'),
  404: refusal('There is no such job.'),
  409: refusal('The job runs or has ended; or the first request with this Idempotency-Key is still in progress.'),
  413: refusal('The body is too long, or has too many jobs.'),
  415: refusal('The body is not application/json, or is compressed.'),
  422: refusal(
    'The jobs do not meet the schema, or can never run; or the Idempotency-Key was used for another request.',
  ),
  429: refusal(
    'The queue is full, or the job could not start in time.',
    'Retry-After',
    'RateLimit',
    'RateLimit-Policy',
  ),
  503: refusal('Redis cannot be reached, or cannot serve now.', 'Retry-After'),
} as const

/**
 * The OpenAPI 3.1 description of a gateway, generated from its configuration: each queue has its own paths, with the
 * schema of its data.
 * @param allowed the queues that the caller may use; undefined means all
 */
export function describeGateway({ queues, basePath }: ResolvedOptions, allowed?: readonly string[]): Node {
  const shown = Object.entries(queues).filter(([name]) => allowed?.includes(name) ?? true)
  const paths = shown.map(([name, rule]) => queuePaths(`${basePath}/queues/${encodeURIComponent(name)}`, name, rule))
  const items = shown.map(([name, rule]) => [itemName(name), itemSchema(rule, dataSchema(name, rule))])
  return {
    openapi: '3.1.0',
    info: { title: 'Sluice gateway', version: '1' },
    paths: Object.assign({ [`${basePath}/openapi.json`]: { get: ownOperation() } }, ...paths),
    components: { schemas: { ...schemas(JOB_STATES), ...Object.fromEntries(items) }, headers, responses, parameters },
  }
}

function ownOperation(): Node {
  const description = {
    description: 'This description.',
    content: { 'application/json': { schema: { type: 'object' } } },
  }
  return { operationId: 'openapi', summary: 'This description', responses: withProblems({ 200: description }, [503]) }
}

function queuePaths(path: string, queueName: string, rule: ResolvedRule): Node {
  const operation = (verb: string, summary: string, rest: Node) => ({
    operationId: `${verb}:${queueName}`,
    tags: [queueName],
    summary,
    ...rest,
  })
  const id = { $ref: '#/components/parameters/JobId' }
  return {
    [`${path}/jobs`]: {
      post: operation('addJobs', 'Adds a job, or several: all or none', addOperation(queueName, rule)),
    },
    [`${path}/jobs/{id}`]: {
      parameters: [id],
      get: operation('getJob', 'The state of a job, and its result', {
        responses: withProblems({ 200: jobResponse(rule) }, [403, 404, 503]),
      }),
      delete: operation('removeJob', 'Removes a waiting job', {
        responses: withProblems(
          { 204: { description: 'The job was removed and will not run.' } },
          [403, 404, 409, 503],
        ),
      }),
    },
    [`${path}/meter`]: {
      get: operation('getMeter', 'How full the queue is, and how fast it drains', {
        responses: withProblems({ 200: json('The meter.', { $ref: '#/components/schemas/Meter' }) }, [403, 503]),
      }),
    },
  }
}

function addOperation(queueName: string, rule: ResolvedRule): Node {
  const { idempotency, maxJobs, maxWaitMs, group } = rule
  const item = { $ref: `#/components/schemas/${itemName(queueName)}` }
  const several = { type: 'array', items: item, minItems: 1, maxItems: maxJobs }
  const accepted = json('Stored; it will run.', { $ref: '#/components/schemas/Accepted' })
  const key = { ...parameters.IdempotencyKey, required: idempotency === 'required' }
  return {
    parameters: [
      key,
      ...(maxWaitMs > 0 ? [{ $ref: '#/components/parameters/Prefer' }] : []),
      ...(typeof group === 'object' && 'header' in group ? [groupParameter(group)] : []),
    ],
    requestBody: { required: true, content: { 'application/json': { schema: { oneOf: [item, several] } } } },
    responses: withProblems(
      {
        202: { ...accepted, headers: header('Location', 'RateLimit', 'RateLimit-Policy', 'Idempotency-Replayed') },
        ...(maxWaitMs > 0 && { 200: { ...jobResponse(rule), headers: header('Preference-Applied') } }),
      },
      [400, 403, 409, 413, 415, 422, 429, 503],
    ),
  }
}

function groupParameter({ header: name, required = false }: { header: string; required?: boolean | undefined }): Node {
  return { name, in: 'header', required, description: 'The group of the jobs.', schema: text }
}

/** Names of components may only have letters, digits, '.', '-' and '_'. */
function itemName(queueName: string): string {
  const name = queueName.replaceAll(/[^\w-]/gu, (character) => `.${character.codePointAt(0)?.toString(16)}.`)
  return `NewJob.${name}`
}

/** Gives the schema its own root, so that references inside it stay local. */
function dataSchema(queueName: string, { schema }: ResolvedRule): boolean | Node {
  if (typeof schema === 'boolean' || schema.$id !== undefined) return schema as boolean | Node
  return { $id: `urn:sluice:data:${encodeURIComponent(queueName)}`, ...schema }
}

function jobResponse({ results }: ResolvedRule): Node {
  const job = { $ref: '#/components/schemas/Job' }
  const withResult = { allOf: [job, { $ref: '#/components/schemas/Result' }] }
  return { ...json('The job.', results ? withResult : job), headers: header('Retry-After') }
}

function json(description: string, schema: Node): Node {
  return { description, content: { 'application/json': { schema } } }
}

function withProblems(answers: Node, statuses: readonly (keyof typeof responses)[]): Node {
  const problems = statuses.map((status) => [status, { $ref: `#/components/responses/${status}` }])
  return { ...answers, ...Object.fromEntries(problems) }
}
