/** The fields that an object may have, and the valid values of each. */
export type Form<T> = Readonly<Record<keyof T, readonly [expected: string, fits: (value: unknown) => boolean]>>

/**
 * Checks an object from a program, a file or a job against its form: a misspelt field would otherwise be silently
 * ignored. Problems are added to `problems`; they name fields of the form, never the given values.
 * @returns whether there are none
 */
export function fitsForm<T>(form: Form<T>, given: unknown, problems: string[]): boolean {
  const names = Object.keys(form)
  const before = problems.length
  if (!isRecord(given)) problems.push(`expected an object with ${names.join(', ')}`)
  else {
    if (Object.keys(given).some((name) => !names.includes(name))) problems.push(`expected only ${names.join(', ')}`)
    for (const name of names) {
      const [expected, fits] = form[name as keyof T]
      if (given[name] !== undefined && !fits(given[name])) problems.push(`${name}: expected ${expected}`)
    }
  }
  return problems.length === before
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isText(value: unknown): value is string {
  return typeof value === 'string'
}

export function isListOf(fits: (value: unknown) => boolean): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && value.every(fits)
}

export function isWhole(min: number, max: number = Number.MAX_SAFE_INTEGER): (value: unknown) => boolean {
  return (value) => Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max
}
