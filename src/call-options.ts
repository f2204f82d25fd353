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
    return new InvalidInputError(
      `${call} has no option '${name}'; it has ${known.join(', ')}${didYouMean(name, known)}`,
    )
  }
  return undefined
}

/** For messages about a name that is unknown: ` (did you mean 'rate'?)`, or nothing if no known name is near it. */
export function didYouMean(name: string, known: readonly string[]): string {
  const near = nearName(name, known)
  return near === undefined ? '' : ` (did you mean '${near}'?)`
}

/** The name that was probably meant: equal apart from case, a plural or a unit or, for longer names, two letters. */
export function nearName(name: string, known: readonly string[]): string | undefined {
  const bare = bareName(name)
  const same = known.find((one) => bareName(one) === bare)
  return same ?? known.find((one) => one.length >= MIN_LENGTH_FOR_TYPOS && distance(bare, bareName(one)) <= 2)
}

/** Shorter names are too near each other. */
const MIN_LENGTH_FOR_TYPOS = 8

function bareName(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, '').replace(/m?s$/, '')
}

/** Number of letters inserted, deleted or replaced. (Levenshtein 1966; Wagner and Fischer 1974) */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i)
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1]
    for (let j = 0; j < other.length; j++) {
      const replaced = (row[j] as number) + (letter === other[j] ? 0 : 1)
      next.push(Math.min(replaced, (row[j + 1] as number) + 1, (next[j] as number) + 1))
    }
    row = next
  }
  return row[other.length] as number
}
