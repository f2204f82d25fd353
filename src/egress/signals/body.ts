/**
 * The value at a path of names and indexes in a body, or undefined. Own values only: no getter of an error or of a
 * stream is run.
 */
export function bodyAt(body: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>(
    (at, name) =>
      typeof at === 'object' && at !== null ? Object.getOwnPropertyDescriptor(at, name)?.value : undefined,
    body,
  )
}

/** A string in a body, or ''. */
export function bodyText(body: unknown, ...path: readonly (string | number)[]): string {
  const value = bodyAt(body, ...path)
  return typeof value === 'string' ? value : ''
}

/** A finite number in a body, 0 or more, or undefined. */
export function bodyNumber(body: unknown, ...path: readonly (string | number)[]): number | undefined {
  const value = bodyAt(body, ...path)
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER ? value : undefined
}

/** The entries of a list in a body, at most a hundred: enough to find the reason of a failure. */
export function bodyList(body: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const value = bodyAt(body, ...path)
  return Array.isArray(value) ? value.slice(0, 100) : []
}
