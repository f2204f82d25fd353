import { domainToASCII } from 'node:url'
import { Ajv, type ErrorObject, type Options, type ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import type { ShapedJobsOptions } from 'sluice'
import { LIMIT_NAME, NO_KEYS } from 'sluice/internal'
import type { HttpRequest } from '../middleware.ts'
import { ProblemError } from '../responses/problem.ts'
import type { JobOption, NameSource, QueueRule, ResolvedRule } from './options.ts'

/** A job as callers send it. */
interface JobItem {
  readonly data: unknown
  readonly opts?: Pick<ShapedJobsOptions, Exclude<JobOption, 'mustStartBefore'>> & { readonly mustStartBefore?: string }
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
  keys: {
    type: 'object',
    maxProperties: 16,
    propertyNames: { type: 'string', pattern: LIMIT_NAME.source, not: { enum: NO_KEYS } },
    additionalProperties: { type: ['string', 'number'], minLength: 1, maxLength: 256 },
    description: 'what the job uses, by names; a value has at most 256 bytes',
  },
} as const satisfies Readonly<Record<JobOption, unknown>>

/** The schema of one job in a request. @param data the schema of its data */
export function itemSchema({ allow, keys }: Pick<ResolvedRule, 'allow' | 'keys'>, data: JsonSchema) {
  const properties = Object.fromEntries(
    allow.map((name) => [name, name === 'keys' ? keysSchema(Object.keys(keys)) : OPTION_SCHEMAS[name]]),
  )
  const opts = { type: 'object', properties, additionalProperties: false }
  return {
    type: 'object',
    properties: { data, ...(allow.length > 0 && { opts }) },
    required: ['data'],
    additionalProperties: false,
  }
}

/** @param named those that callers cannot set, since the rule names their values */
function keysSchema(named: readonly string[]) {
  const { propertyNames, ...schema } = OPTION_SCHEMAS.keys
  return { ...schema, propertyNames: { ...propertyNames, not: { enum: [...NO_KEYS, ...named] } } }
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
   * @throws ProblemError 413 for too many jobs, 422 with a pointer to each that does not meet the schema, 403 or 422
   * for a job without the group or a key that it needs
   */
  read(body: unknown, request: HttpRequest): NewJob[] {
    const items = Array.isArray(body) ? body : [body]
    const { maxJobs } = this.#rule
    if (items.length > maxJobs) {
      const detail = `${items.length} jobs are too many for one request, which may have ${maxJobs}.`
      throw new ProblemError(413, detail, { limit: maxJobs })
    }
    if (items.length === 0) throw new ProblemError(422, 'The array has no job.')
    const problems: SchemaProblem[] = []
    for (const [i, item] of items.entries()) {
      const found = this.#check(item, Array.isArray(body) ? `/${i}` : '')
      if (found && problems.push(found) === MAX_PROBLEMS) break
    }
    if (problems.length > 0) throw invalid(problems)
    const { group, keys } = this.#rule
    return items.map((item, i) => {
      const job = this.#jobOf(item as JobItem)
      const source = { request, data: job.data, at: Array.isArray(body) ? `/${i}` : '' }
      return inGroup(withKeys(job, keys, source), group, source)
    })
  }

  #check(item: unknown, at: string): SchemaProblem | undefined {
    return this.#checkItem(item, at) ?? this.#checkData((item as JobItem).data, `${at}/data`)
  }

  #jobOf({ data, opts }: JobItem): NewJob {
    return { name: this.#rule.jobName, data, opts: opts ? optionsOf(opts) : {} }
  }
}

/** Where the names of a job are looked up. */
interface Source {
  readonly request: HttpRequest
  readonly data: unknown
  /** The place of the job in the body, for messages. */
  readonly at: string
}

function withKeys(job: NewJob, rules: ResolvedRule['keys'], source: Source): NewJob {
  const named = Object.entries(rules).flatMap(([name, rule]) => {
    const value = nameOf(rule, source, `key '${name}'`)
    return value === undefined ? [] : [[name, value]]
  })
  if (named.length === 0) return job
  return { ...job, opts: { ...job.opts, keys: { ...job.opts.keys, ...Object.fromEntries(named) } } }
}

/** A priority is then one inside the group. */
function inGroup(job: NewJob, rule: NameSource | undefined, source: Source): NewJob {
  const id = rule && nameOf(rule, source, 'group')
  if (id === undefined) return job
  const { priority, ...opts } = job.opts
  return { ...job, opts: { ...opts, group: priority === undefined ? { id } : { id, priority } } }
}

function optionsOf({ mustStartBefore, ...rest }: NonNullable<JobItem['opts']>): ShapedJobsOptions {
  return mustStartBefore === undefined ? rest : { ...rest, mustStartBefore: new Date(mustStartBefore) }
}

function invalid(problems: readonly SchemaProblem[]): ProblemError {
  const [{ pointer, detail }] = problems as [SchemaProblem]
  return new ProblemError(422, `${pointer === '' ? 'The body' : pointer} ${detail}.`, { extra: { errors: problems } })
}

/** Where a value violates its schema. */
interface SchemaProblem {
  /** JSON Pointer (RFC 6901) into the body. */
  readonly pointer: string
  readonly detail: string
}

/** @param at the pointer of the value; @returns the first problem */
type Check = (value: unknown, at: string) => SchemaProblem | undefined

type JsonSchema = boolean | Readonly<Record<string, unknown>>

const DRAFT_07 = /^https?:\/\/json-schema\.org\/draft-07\/schema#?$/
const DRAFT_2020 = /^https:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/

// The first error ends the check: otherwise untrusted callers could make it collect all errors of a large body.
// No coercion, no defaults: the data is stored as it was sent.
const OPTIONS: Options = { strict: true, strictRequired: false, allowUnionTypes: true, logger: false }

/**
 * Compiles a schema: draft 2020-12, or draft-07 if `$schema` says so. Formats are checked, unknown keywords refused.
 * @throws Error that says what is wrong with the schema
 */
function compileSchema(schema: JsonSchema): Check {
  const validate = ajvFor(schema).compile(schema)
  return (value, at) => {
    if (validate(value)) return undefined
    return problemOf(validate, at)
  }
}

function ajvFor(schema: JsonSchema): Ajv {
  const dialect = typeof schema === 'object' ? schema.$schema : undefined
  if (dialect !== undefined && !(typeof dialect === 'string' && (DRAFT_07.test(dialect) || DRAFT_2020.test(dialect)))) {
    throw new Error(`$schema must be that of draft 2020-12 or of draft-07; got ${JSON.stringify(dialect)}`)
  }
  // A schema may have an $id, so each has its own Ajv.
  const ajv = typeof dialect === 'string' && DRAFT_07.test(dialect) ? new Ajv(OPTIONS) : new Ajv2020(OPTIONS)
  formats.default(ajv)
  return ajv
}

function problemOf({ errors }: ValidateFunction, at: string): SchemaProblem {
  const [error] = errors as ErrorObject[]
  return { pointer: `${at}${error?.instancePath ?? ''}`, detail: error?.message ?? 'does not meet the schema' }
}

/**
 * What a job is named for its group or a key; undefined if it is not.
 * @param what is named, for messages
 * @throws ProblemError 403 or 422
 */
export function nameOf(rule: NameSource, { request, data, at }: Source, what: string): string | undefined {
  if (rule === 'token') return request.identity?.name ?? refuse(403, 'Only callers with a token may add jobs here.')
  if ('header' in rule) {
    const value = request.header(rule.header.toLowerCase())?.trim()
    if (value) return value
    return rule.required
      ? refuse(422, `The field ${rule.header} is missing: it names the ${what} of the jobs.`)
      : undefined
  }
  const found = FORMS[rule.as ?? 'text'](valueAt(data, rule.data))
  if (found !== undefined || !rule.required) return found
  return refuse(422, `${at}/data${rule.data} names no ${what} of jobs.`)
}

function refuse(status: 403 | 422, detail: string): never {
  throw new ProblemError(status, detail)
}

/** What a value names. */
const FORMS = {
  text: (value: unknown) => (typeof value === 'number' ? String(value) : textOf(value)),
  'mail-domain': (value: unknown) => domainOf(textOf(value) ?? ''),
  'url-host': (value: unknown) => (URL.canParse(String(value)) ? hostOf(new URL(String(value))) : undefined),
} as const

/** A domain is one destination, however callers write it: otherwise each spelling would have a rate of its own. */
function domainOf(addresses: string): string | undefined {
  const [domain = ''] = /^[^\s<>(),:;"[\\\]]*/.exec(addresses.slice(lastAtSign(addresses) + 1)) ?? []
  return textOf(withoutRoot(domainToASCII(domain) || domain.toLowerCase()))
}

/** That of the last address: an @ in a quoted name or in a comment is of none. The end of the text if there is none. */
function lastAtSign(text: string): number {
  let [found, isQuoted, comments] = [text.length, false, 0]
  for (let i = 0; i < text.length; i++) {
    const character = text[i]
    if (character === '\\') i += 1
    else if (character === '"') isQuoted = comments > 0 ? isQuoted : !isQuoted
    else if (isQuoted) continue
    else if (character === '(') comments += 1
    else if (character === ')') comments = Math.max(0, comments - 1)
    else if (character === '@' && comments === 0) found = i
  }
  return found
}

function hostOf({ hostname, port }: URL): string | undefined {
  return textOf(withoutRoot(hostname) + (port && `:${port}`))
}

/** The dot at the end of a name is that of the root, which may be written or not. */
function withoutRoot(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1) : name
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** By a JSON Pointer. (RFC 6901) */
function valueAt(data: unknown, pointer: string): unknown {
  const names = pointer.split('/').slice(1)
  return names.reduce((value: unknown, name) => {
    const key = name.replaceAll('~1', '/').replaceAll('~0', '~')
    return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
      ? (value as Record<string, unknown>)[key]
      : undefined
  }, data)
}
