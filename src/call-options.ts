import { InvalidInputError } from './errors.ts'

/**
 * Refuses options that a call would ignore silently, as untyped programs may pass them.
 * @param call its name, for the message
 * @throws InvalidInputError
 */
export function checkCallOptions(call: string, options: unknown, known: readonly string[]): void {
  const wrong = wrongCallOptions(call, options, known)
  if (wrong) throw wrong
}

/** The same as a return value, for calls that reject. */
export function wrongCallOptions(
  call: string,
  options: unknown,
  known: readonly string[],
): InvalidInputError | undefined {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    const came = JSON.stringify(options) ?? String(options)
    return new InvalidInputError(`${call} takes an object of options, of ${known.join(', ')}; got ${came}`)
  }
  for (const name in options) {
    if (known.includes(name) || (options as Readonly<Record<string, unknown>>)[name] === undefined) continue
    return new InvalidInputError(`${call} has no option '${name}'; it has ${known.join(', ')}`)
  }
  return undefined
}
