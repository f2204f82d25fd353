import type { ShapedJobsOptions } from 'sluice'
import type { HttpRequest } from '../middleware.ts'
import { groupOf } from './job-group.ts'
import type { GroupRule, QueueRule, ResolvedRule } from './options.ts'
import { problem, RequestProblem } from './request-problem.ts'
import { type Check, compileSchema, type JsonSchema, type SchemaProblem } from './schema.ts'

/** A job as callers send it. */
interface JobItem {
  readonly data: unknown
  readonly opts?: Readonly<Record<string, number | string>>
}

/** A job as queues take it. */
export interface NewJob {
  readonly name: string
  readonly data: unknown
  readonly opts: ShapedJobsOptions
}

/** Maximum number of invalid jobs reported for an array. */
const MAX_PROBLEMS = 20
/** A year. */
const MAX_DELAY_MS = 31_536_000_000

const OPTION_SCHEMAS = {
  delay: { type: 'integer', minimum: 0, maximum: MAX_DELAY_MS, description: 'ms' },
  priority: { type: 'integer', minimum: 0, maximum: 2_097_152, description: '1 is the highest; 0 is none' },
  cost: { type: 'number', exclusiveMinimum: 0, maximum: 1_000_000_000, description: 'units of the rate' },
  mustStartBefore: {
    type: 'string',
    format: 'date-time',
    description: 'a job that cannot start before then is refused, or fails later',
  },
} as const

/** The schema of one job in a request. @param data the schema of its data */
export function itemSchema({ allow }: Pick<ResolvedRule, 'allow'>, data: JsonSchema) {
  const properties = Object.fromEntries(allow.map((name) => [name, OPTION_SCHEMAS[name]]))
  const opts = { type: 'object', properties, additionalProperties: false }
  return {
    type: 'object',
    properties: { data, ...(allow.length > 0 && { opts }) },
    required: ['data'],
    additionalProperties: false,
  }
}

/** Reads the jobs, one or an array, from the body of a request. */
export class JobItems {
  readonly #rule: ResolvedRule
  readonly #checkItem: Check
  readonly #checkData: Check

  /** @throws Error that says what is wrong with the schema of the rule */
  constructor(rule: ResolvedRule) {
    this.#rule = rule
    this.#checkItem = compileSchema(itemSchema(rule, true))
    this.#checkData = compileSchema(rule.schema as QueueRule['schema'])
  }

  /**
   * @returns a list, also for a single job
   * @throws RequestProblem 413 for too many jobs, 422 with a pointer to each that does not meet the schema, 403 or 422
   * for a job without the group that it needs
   */
  read(body: unknown, request: HttpRequest): NewJob[] {
    const items = Array.isArray(body) ? body : [body]
    const { maxJobs } = this.#rule
    if (items.length > maxJobs) {
      throw new RequestProblem({
        status: 413,
        kind: 'about:blank',
        detail: `${items.length} jobs are too many for one request, which may have ${maxJobs}.`,
        limit: maxJobs,
      })
    }
    if (items.length === 0) throw problem(422, 'The array has no job.')
    const problems: SchemaProblem[] = []
    for (const [i, item] of items.entries()) {
      const found = this.#check(item, Array.isArray(body) ? `/${i}` : '')
      if (found && problems.push(found) === MAX_PROBLEMS) break
    }
    if (problems.length > 0) throw invalid(problems)
    const jobs = items.map((item) => this.#jobOf(item as JobItem))
    const { group } = this.#rule
    return group ? jobs.map((job, i) => inGroup(job, group, request, Array.isArray(body) ? `/${i}` : '')) : jobs
  }

  #check(item: unknown, at: string): SchemaProblem | undefined {
    return this.#checkItem(item, at) ?? this.#checkData((item as JobItem).data, `${at}/data`)
  }

  #jobOf({ data, opts }: JobItem): NewJob {
    return { name: this.#rule.jobName, data, opts: opts ? optionsOf(opts) : {} }
  }
}

/** A priority is then one inside the group. */
function inGroup(job: NewJob, rule: GroupRule, request: HttpRequest, at: string): NewJob {
  const id = groupOf(rule, request, job.data, at)
  if (id === undefined) return job
  const { priority, ...opts } = job.opts
  return { ...job, opts: { ...opts, group: priority === undefined ? { id } : { id, priority } } }
}

function optionsOf({ mustStartBefore, ...rest }: NonNullable<JobItem['opts']>): ShapedJobsOptions {
  return mustStartBefore === undefined ? rest : { ...rest, mustStartBefore: new Date(mustStartBefore) }
}

function invalid(problems: readonly SchemaProblem[]): RequestProblem {
  const [{ pointer, detail }] = problems as [SchemaProblem]
  return new RequestProblem({
    status: 422,
    kind: 'about:blank',
    detail: `${pointer === '' ? 'The body' : pointer} ${detail}.`,
    extra: { errors: problems },
  })
}
