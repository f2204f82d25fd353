/** The types a parameter can have in a statement file. */
export const PARAMETER_TYPES = [
  'string',
  'integer',
  'bigint',
  'number',
  'boolean',
  'timestamp',
  'uuid',
  'json',
] as const

export type ParameterType = (typeof PARAMETER_TYPES)[number]

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i
const ISO_TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/
const DIGITS = /^-?\d{1,19}$/

// PostgreSQL's text cannot hold NUL; refused here, the error names the parameter.
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
export function encodeParameter(type: ParameterType, value: unknown): unknown {
  return ENCODERS[type](value)
}
