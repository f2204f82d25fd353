import { gotText } from './call-options.ts'

/** The rule for a field of options. */
export interface FieldCheck {
  /** In words, for messages: `a whole number >= 1`. */
  readonly expected: string
  readonly ok: (value: unknown) => boolean
}

/** @param unit for the message, such as `of ms` */
export function numberFrom(least: number, unit = ''): FieldCheck {
  return { expected: `${named('a number', unit)} >= ${least}`, ok: (value) => isNumber(value) && value >= least }
}

/** @param unit for the message, such as `of ms` */
export function numberAbove(bound: number, unit = ''): FieldCheck {
  return { expected: `${named('a number', unit)} > ${bound}`, ok: (value) => isNumber(value) && value > bound }
}

/** @param unit for the message, such as `of ms` */
export function wholeFrom(least: number, unit = ''): FieldCheck {
  return {
    expected: `${named('a whole number', unit)} >= ${least}`,
    ok: (value) => Number.isSafeInteger(value) && (value as number) >= least,
  }
}

export function wholeWithin(least: number, most: number): FieldCheck {
  return {
    expected: `a whole number from ${least} to ${most}`,
    ok: (value) => wholeFrom(least).ok(value) && (value as number) <= most,
  }
}

export function oneOf(...names: readonly string[]): FieldCheck {
  const listed = names.map((name) => `'${name}'`)
  const last = listed.pop()
  return {
    expected: listed.length === 0 ? `${last}` : `${listed.join(', ')} or ${last}`,
    ok: (value) => names.includes(value as string),
  }
}

/**
 * Checks the given fields.
 * @param path of the fields, for messages, such as `shape.`
 */
export function checkFields<T extends object>(
  given: T,
  checks: { readonly [F in keyof T]?: FieldCheck },
  refusal: new (message: string) => Error,
  path = '',
): void {
  for (const [field, check] of Object.entries(checks) as [keyof T & string, FieldCheck][]) {
    const value = given[field]
    if (value !== undefined) checkField(`${path}${field}`, value, check, refusal)
  }
}

export function checkField(
  name: string,
  value: unknown,
  { expected, ok }: FieldCheck,
  refusal: new (message: string) => Error,
): void {
  if (!ok(value)) throw new refusal(`${name} must be ${expected}; got ${gotText(value)}`)
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

function named(noun: string, unit: string): string {
  return unit === '' ? noun : `${noun} ${unit}`
}
