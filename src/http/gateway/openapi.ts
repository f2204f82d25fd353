import { itemSchema } from './job-items.ts'
import { JOB_STATES } from './job-place.ts'
import { header, headers, type Node, parameters, responses, schemas } from './openapi-parts.ts'
import type { ResolvedOptions, ResolvedRule } from './options.ts'

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
      get: operation('getJob', 'Where a job is, and what came of it', {
        responses: withProblems({ 200: jobResponse(rule) }, [403, 404, 503]),
      }),
      delete: operation('removeJob', 'Removes a job that waits', {
        responses: withProblems({ 204: { description: 'It will not run.' } }, [403, 404, 409, 503]),
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
  const { idempotency, maxJobs, maxWaitMs } = rule
  const item = { $ref: `#/components/schemas/${itemName(queueName)}` }
  const several = { type: 'array', items: item, minItems: 1, maxItems: maxJobs }
  const accepted = json('Stored; it will run.', { $ref: '#/components/schemas/Accepted' })
  const key = { ...parameters.IdempotencyKey, required: idempotency === 'required' }
  return {
    parameters: [key, ...(maxWaitMs > 0 ? [{ $ref: '#/components/parameters/Prefer' }] : [])],
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
