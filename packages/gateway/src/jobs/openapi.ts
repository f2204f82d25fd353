import { z } from 'zod'
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiResponseObject } from 'zod-openapi'
import { itemSchema } from './job-items.ts'
import { JOB_STATES } from './job-place.ts'
import { isHeader, type NameSource, type ResolvedOptions, type ResolvedRule } from './options.ts'

const text = z.string()
const whole = z.int().min(0)
const instant = text.meta({ format: 'date-time' })

const place = (...more: readonly string[]) =>
  z.looseObject({
    id: text,
    state: z.enum([...JOB_STATES, ...more]),
    position: whole.optional().describe('Jobs ahead of it, if known.'),
    startsAt: instant.optional().describe('Estimated start, if known.'),
  })
const job = place().meta({ id: 'Job' })
const jobWithResult = place()
  .extend({ result: z.unknown().optional().describe('What a completed job returned.'), failedReason: text.optional() })
  .meta({ id: 'JobWithResult' })
const accepted = z
  .union([place('removed'), z.looseObject({ jobs: z.array(place('removed')) })])
  .meta({ id: 'Accepted' })

const meter = z
  .looseObject({
    at: instant,
    depth: whole.describe('Jobs that hold a place.'),
    capacity: whole.optional(),
    waiting: whole,
    delayed: whole,
    active: whole,
    refusedTotal: whole,
    rate: text.optional().describe("The current rate, such as '50/s'."),
    burst: z.number().optional(),
    level: z.number().describe('Units of cost that the bucket holds.'),
    cause: text.describe('What sets this rate.'),
    nextDepartureAt: instant.optional(),
    paused: z.boolean(),
    pausedUntil: instant.optional(),
  })
  .meta({ id: 'Meter' })

const problem = z
  .looseObject({
    type: text,
    title: text,
    status: whole,
    detail: text,
    instance: text.optional(),
    errors: z.array(z.looseObject({ pointer: text, detail: text })).optional(),
    retryAfterMs: whole.optional(),
    retry_after: whole.optional(),
    'violated-policies': z.array(text).optional(),
    limit: whole.optional(),
    remaining: whole.optional(),
  })
  .meta({ id: 'Problem', description: 'RFC 9457.' })

const field = (id: string, description: string, schema: z.ZodType = text) =>
  schema.optional().meta({ description, header: { id } })
const fields = z.object({
  Location: field('Location', 'The job, if there is only one.'),
  'Retry-After': field('Retry-After', 'When to retry, seconds.', whole),
  RateLimit: field('RateLimit', 'draft-ietf-httpapi-ratelimit-headers-10: the places that are left.'),
  'RateLimit-Policy': field('RateLimit-Policy', 'The capacity of the queue, and the rate at which it drains.'),
  'Idempotency-Replayed': field(
    'Idempotency-Replayed',
    'Present if an earlier request already added the jobs.',
    z.literal('true'),
  ),
  'Preference-Applied': field('Preference-Applied', 'RFC 7240.'),
})

const idempotencyKey = text.describe(
  'A String of RFC 9651, up to 128 characters. The same request with the same key adds nothing.',
)
const prefer = text.optional().meta({
  description: 'RFC 7240: wait=n delays the response by up to n seconds, until the result of one job is known.',
  param: { id: 'Prefer' },
})
const jobId = z.object({ id: text.meta({ param: { id: 'JobId' } }) })

const PROBLEMS = {
  400: 'The body is not valid JSON, or the Idempotency-Key is missing or malformed.',
  403: 'The caller has no access to this queue.',
  404: 'There is no such job.',
  409: 'The job runs or has ended; the first request with this Idempotency-Key is still in progress; or another job with its keys is there.',
  413: 'The body is too long, or has too many jobs.',
  415: 'The body is not application/json, or is compressed.',
  422: 'The jobs do not meet the schema, or can never run; or the Idempotency-Key was used for another request.',
  429: 'The queue is full, or the job could not start in time.',
  503: 'Redis cannot be reached, or cannot serve now.',
} as const
const PROBLEM_FIELDS = {
  429: fields.pick({ 'Retry-After': true, RateLimit: true, 'RateLimit-Policy': true }),
  503: fields.pick({ 'Retry-After': true }),
}
const problems = Object.entries(PROBLEMS).map(([status, description]): [string, ZodOpenApiResponseObject] => {
  const headers = PROBLEM_FIELDS[status as '429' | '503']
  const content = { 'application/problem+json': { schema: problem } }
  return [status, { id: status, description, ...(headers && { headers }), content }]
})

/** The answers of an operation, with problems of these statuses. */
function answers(given: Readonly<Record<number, ZodOpenApiResponseObject>>, ...statuses: (keyof typeof PROBLEMS)[]) {
  return { ...given, ...Object.fromEntries(problems.filter(([status]) => statuses.some((one) => `${one}` === status))) }
}

function json(description: string, schema: z.ZodType, headers?: z.ZodObject): ZodOpenApiResponseObject {
  return { description, content: { 'application/json': { schema } }, ...(headers && { headers }) }
}

/**
 * The OpenAPI 3.1 description of a gateway, generated from its configuration: each queue has its own paths, with the
 * schema of its data. It is made once, at the first call.
 * @returns the description for a caller who may use some queues; undefined means all
 */
export function gatewayDescription(options: ResolvedOptions): (allowed?: readonly string[]) => object {
  let whole: ReturnType<typeof describe> | undefined
  return (allowed) => {
    whole ??= describe(options)
    if (!allowed) return whole
    const hidden = Object.keys(options.queues).filter((name) => !allowed.includes(name))
    const [paths, items] = [hidden.map((name) => `${queuePath(options, name)}/`), hidden.map(itemName)]
    const schemas = without(whole.components.schemas, (name) => items.includes(name))
    return {
      ...whole,
      paths: without(whole.paths, (path) => paths.some((start) => path.startsWith(start))),
      components: { ...whole.components, schemas },
    }
  }
}

function without<T>(given: Readonly<Record<string, T>>, isHidden: (name: string) => boolean): Record<string, T> {
  return Object.fromEntries(Object.entries(given).filter(([name]) => !isHidden(name)))
}

function describe(options: ResolvedOptions) {
  const queues = Object.entries(options.queues)
  const own = operation(
    'openapi',
    'This description',
    answers({ 200: json('This description.', z.looseObject({})) }, 503),
  )
  const { components, paths, ...document } = createDocument({
    openapi: '3.1.0',
    info: { title: 'Sluice gateway', version: '1' },
    paths: Object.assign(
      { [`${options.basePath}/openapi.json`]: { get: own } },
      ...queues.map(([name, rule]) => queuePaths(queuePath(options, name), name, rule)),
    ),
  })
  // As they are: they are JSON Schema, not zod's.
  const items = queues.map(([name, rule]) => [itemName(name), itemSchema(rule, dataSchema(name, rule))])
  const schemas: Record<string, unknown> = { ...components?.schemas, ...Object.fromEntries(items) }
  return { ...document, paths: paths ?? {}, components: { ...components, schemas } }
}

function queuePath({ basePath }: ResolvedOptions, name: string): string {
  return `${basePath}/queues/${encodeURIComponent(name)}`
}

function operation(operationId: string, summary: string, responses: ZodOpenApiOperationObject['responses']) {
  return { operationId, summary, responses }
}

function queuePaths(path: string, queueName: string, rule: ResolvedRule) {
  const of = (verb: string, ...rest: [summary: string, responses: ZodOpenApiOperationObject['responses']]) => ({
    ...{ ...operation(`${verb}:${queueName}`, ...rest), tags: [queueName] },
  })
  const found = json('The job.', rule.results ? jobWithResult : job, fields.pick({ 'Retry-After': true }))
  const removed = { description: 'The job was removed and will not run.' }
  const aborting = json('The job runs, and is being aborted: it fails, unless it completes first.', job)
  const id = { requestParams: { path: jobId } }
  return {
    [`${path}/jobs`]: {
      post: { ...of('addJobs', 'Adds a job, or several: all or none', added(rule)), ...request(queueName, rule) },
    },
    [`${path}/jobs/{id}`]: {
      get: { ...of('getJob', 'The state of a job, and its result', answers({ 200: found }, 403, 404, 503)), ...id },
      delete: {
        ...of(
          'removeJob',
          'Removes a waiting job, or aborts a running one',
          answers({ 202: aborting, 204: removed }, 403, 404, 409, 503),
        ),
        ...id,
      },
    },
    [`${path}/meter`]: {
      get: of(
        'getMeter',
        'How full the queue is, and how fast it drains',
        answers({ 200: json('The meter.', meter) }, 403, 503),
      ),
    },
  }
}

function added({ results, maxWaitMs }: ResolvedRule) {
  const stored = fields.pick({
    Location: true,
    RateLimit: true,
    'RateLimit-Policy': true,
    'Idempotency-Replayed': true,
  })
  const ended = json('The job.', results ? jobWithResult : job, fields.pick({ 'Preference-Applied': true }))
  const given = { 202: json('Stored; it will run.', accepted, stored), ...(maxWaitMs > 0 && { 200: ended }) }
  return answers(given, 400, 403, 409, 413, 415, 422, 429, 503)
}

function request(queueName: string, { idempotency, maxJobs, maxWaitMs, group, keys }: ResolvedRule) {
  const item = { $ref: `#/components/schemas/${itemName(queueName)}` }
  const several = { type: 'array' as const, items: item, minItems: 1, maxItems: maxJobs }
  const named = Object.entries(keys).map(([name, source]) => [source, `The key '${name}' of the jobs.`] as const)
  const header = z.object({
    'Idempotency-Key': idempotency === 'required' ? idempotencyKey : idempotencyKey.optional(),
    ...(maxWaitMs > 0 && { Prefer: prefer }),
    ...nameField(group, 'The group of the jobs.'),
    ...Object.assign({}, ...named.map(([source, what]) => nameField(source, what))),
  })
  return {
    requestParams: { header },
    requestBody: { required: true, content: { 'application/json': { schema: { oneOf: [item, several] } } } },
  }
}

/** The field of the header that names something of the jobs, if one does. */
function nameField(source: NameSource | undefined, what: string) {
  if (!isHeader(source)) return {}
  const named = text.describe(what)
  return { [source.header]: source.required ? named : named.optional() }
}

/** Names of components may only have letters, digits, '.', '-' and '_'. */
function itemName(queueName: string): string {
  const name = queueName.replaceAll(/[^\w-]/gu, (character) => `.${character.codePointAt(0)?.toString(16)}.`)
  return `NewJob.${name}`
}

/** Gives the schema its own root, so that references inside it stay local. */
function dataSchema(queueName: string, { schema }: ResolvedRule): ResolvedRule['schema'] {
  if (typeof schema === 'boolean' || schema.$id !== undefined) return schema
  return { $id: `urn:sluice:data:${encodeURIComponent(queueName)}`, ...schema }
}
