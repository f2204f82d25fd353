import { Ajv, type ErrorObject, type Options, type ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'

/** Where a value violates its schema. */
export interface SchemaProblem {
  /** JSON Pointer (RFC 6901) into the body. */
  readonly pointer: string
  readonly detail: string
}

/** @param at the pointer of the value; @returns the first problem */
export type Check = (value: unknown, at: string) => SchemaProblem | undefined

export type JsonSchema = boolean | Readonly<Record<string, unknown>>

const DRAFT_07 = /^https?:\/\/json-schema\.org\/draft-07\/schema#?$/
const DRAFT_2020 = /^https:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/

// The first error ends the check: otherwise untrusted callers could make it collect all errors of a large body.
// No coercion, no defaults: the data is stored as it was sent.
const OPTIONS: Options = { strict: true, strictRequired: false, allowUnionTypes: true, logger: false }

/**
 * Compiles a schema: draft 2020-12, or draft-07 if `$schema` says so. Formats are checked, unknown keywords refused.
 * @throws Error that says what is wrong with the schema
 */
export function compileSchema(schema: JsonSchema): Check {
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
