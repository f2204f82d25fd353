import { InvalidPayloadError } from 'sluice-programs'
import { z } from 'zod'

/** The types a parameter can have in a statement file. */
const PARAMETER_TYPES = ['string', 'integer', 'bigint', 'number', 'boolean', 'timestamp', 'uuid', 'json'] as const

type ParameterType = (typeof PARAMETER_TYPES)[number]

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i
const ISO_TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/
const DIGITS = /^-?\d{1,19}$/

// PostgreSQL's text cannot hold NUL. Refused here, so that the error names the parameter.
const isText = (value: unknown): value is string => typeof value === 'string' && !value.includes('\0')

const ENCODERS: Record<ParameterType, (value: unknown) => unknown> = {
  string: (value) => (isText(value) ? value : undefined),
  integer: (value) => (Number.isSafeInteger(value) ? value : undefined),
  // A string, since JSON numbers lose digits beyond 2^53.
  bigint: (value) => (isText(value) && DIGITS.test(value) ? value : undefined),
  number: (value) => (Number.isFinite(value) ? value : undefined),
  boolean: (value) => (typeof value === 'boolean' ? value : undefined),
  timestamp: (value) =>
    isText(value) && ISO_TIMESTAMP.test(value) && !Number.isNaN(Date.parse(value)) ? value : undefined,
  uuid: (value) => (isText(value) && UUID.test(value) ? value : undefined),
  // The driver would turn an array into a PostgreSQL array, so JSON is encoded here.
  json: (value) => (value === undefined ? undefined : JSON.stringify(value)),
}

/** The value in the form that the driver takes, or undefined when it is absent or of another type. */
function encodeParameter(type: ParameterType, value: unknown): unknown {
  return ENCODERS[type](value)
}

const NAME = /^[A-Za-z][\w-]{0,63}$/
const WRITING_STATEMENT = /^\s*(insert|update|delete|merge|with|select)\b/i

const parameterSchema = z.strictObject({
  name: z.string().regex(NAME),
  type: z.enum(PARAMETER_TYPES),
  nullable: z.boolean().default(false),
})

const sqlSchema = z.string().regex(WRITING_STATEMENT, 'expected one insert, update, delete, merge, with or select')

const statementSchema = z
  .strictObject({
    sql: sqlSchema,
    batchSql: sqlSchema.optional(),
    parameters: z.array(parameterSchema).max(100),
  })
  .superRefine(({ sql, batchSql, parameters }, context) => {
    const names = new Set(parameters.map(({ name }) => name))
    if (names.size < parameters.length) context.addIssue({ code: 'custom', message: 'parameter names repeat' })
    for (const [field, text] of Object.entries({ sql, batchSql })) {
      const message = text === undefined ? undefined : positionsProblem(text, parameters.length)
      if (message) context.addIssue({ code: 'custom', message, path: [field] })
    }
  })

function positionsProblem(sql: string, parameters: number): string | undefined {
  const used = new Set(Array.from(sql.matchAll(/\$(\d+)/g), ([, digits]) => Number(digits)))
  const listed = Array.from({ length: parameters }, (_, index) => index + 1)
  if (used.size === listed.length && listed.every((position) => used.has(position))) return undefined
  const found = [...used].sort((a, b) => a - b).map((position) => `$${position}`)
  return `expected $1 to $${parameters} in the SQL for ${parameters} parameters, got ${found.join(' ') || 'none'}`
}

const fileSchema = z.strictObject({
  statements: z
    .record(z.string().regex(NAME), statementSchema)
    .refine((statements) => Object.keys(statements).length > 0, 'expected at least one statement'),
})

const jobSchema = z.strictObject({ statement: z.string(), parameters: z.record(z.string(), z.unknown()) })

/** The data of a job: the name of a configured statement and its parameters by name. Never SQL, never identifiers. */
export type DatabaseWrite = z.input<typeof jobSchema>

interface StatementParameter {
  readonly name: string
  readonly type: ParameterType
  readonly nullable: boolean
}

export interface Statement {
  readonly sql: string
  /** The same for a batch: each parameter is an array with one element per write. */
  readonly batchSql?: string | undefined
  readonly parameters: readonly StatementParameter[]
}

/** The statements that jobs may name. */
export type StatementCatalog = ReadonlyMap<string, Statement>

/** A statement with its parameters in order, ready to run. */
export interface BoundStatement {
  readonly name: string
  readonly sql: string
  readonly batchSql?: string | undefined
  readonly values: readonly unknown[]
}

/**
 * Reads the text of a statement file: `{"statements": {"name": {"sql": "…", "parameters": [{"name", "type"}]}}}`.
 * @throws Error whose message has one line for each problem.
 */
export function parseStatements(json: string): StatementCatalog {
  const parsed = fileSchema.safeParse(JSON.parse(json))
  if (parsed.success) return new Map(Object.entries(parsed.data.statements))
  const lines = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`)
  throw new Error(lines.join('\n'))
}

/**
 * Finds the statement that a job names and puts the job's parameters in its order.
 * @throws InvalidPayloadError when the statement is unknown or a parameter is missing, unknown or of another type.
 */
export function bindStatement(catalog: StatementCatalog, data: unknown): BoundStatement {
  const job = jobSchema.safeParse(data)
  if (!job.success) {
    throw new InvalidPayloadError('the write', ['expected {"statement": name, "parameters": {…}} and nothing else'])
  }
  const { statement: name, parameters: given } = job.data
  const statement = catalog.get(name)
  if (!statement)
    throw new InvalidPayloadError('the write', [`expected a statement among ${[...catalog.keys()].join(', ')}`])
  const problems: string[] = []
  const values = statement.parameters.map((parameter) => {
    const value = Object.hasOwn(given, parameter.name) ? given[parameter.name] : undefined
    const encoded = value === null && parameter.nullable ? null : encodeParameter(parameter.type, value)
    if (encoded === undefined) problems.push(describeMismatch(parameter, value))
    return encoded
  })
  const known = new Set(statement.parameters.map((parameter) => parameter.name))
  const extra = Object.keys(given).filter((key) => !known.has(key)).length
  if (extra > 0) problems.push(`expected only ${[...known].join(', ')}, got ${extra} other parameter(s) as well`)
  if (problems.length > 0) throw new InvalidPayloadError(`the write "${name}"`, problems)
  return { name, sql: statement.sql, batchSql: statement.batchSql, values }
}

function describeMismatch({ name, type, nullable }: StatementParameter, value: unknown): string {
  const came = value === undefined ? 'nothing' : value === null ? 'null' : `another ${typeof value}`
  return `${name}: expected ${type}${nullable ? ' or null' : ''}, got ${came}`
}
