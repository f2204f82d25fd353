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
    return new InvalidInputError(`${call} takes an object of options, of ${known.join(', ')}; got ${gotText(options)}`)
  }
  for (const name in options) {
    if (known.includes(name) || (options as Readonly<Record<string, unknown>>)[name] === undefined) continue
    return new InvalidInputError(
      `${call} has no option '${name}'; it has ${known.join(', ')}${didYouMean(name, known)}`,
    )
  }
  return undefined
}

/**
 * Refuses an argument of another kind, as untyped programs may pass it.
 * @throws InvalidInputError
 */
export function checkArgument(isRight: boolean, what: string, expected: string, value: unknown): void {
  if (!isRight) throw new InvalidInputError(`${what} must be ${expected}; got ${gotText(value)}`)
}

/** @throws InvalidInputError; a name without a queue would be a key of its own, and BullMQ's error has no type */
export function checkQueueName(name: unknown): void {
  if (typeof name !== 'string' || name === '') {
    throw new InvalidInputError(`Queue name must be provided: expected a string without ':'; got ${gotText(name)}`)
  }
  if (name.includes(':')) throw new InvalidInputError(`Queue name cannot contain ':'; got ${gotText(name)}`)
}

/** @throws InvalidInputError */
export function checkSignal(call: string, signal: unknown): void {
  const isRight = signal === undefined || signal instanceof AbortSignal
  checkArgument(isRight, `${call}: signal`, 'an AbortSignal', signal)
}

const MAX_GOT = 100

/** The actual value, for a message; without the credentials of a URL. */
export function gotText(value: unknown): string {
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'number') return String(value)
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch {
    // Circular, or a BigInt.
  }
  const got = withoutCredentials(text ?? String(value))
  return got.length > MAX_GOT ? `${got.slice(0, MAX_GOT)}…` : got
}

/** Credentials as in the URL of a Redis. */
function withoutCredentials(text: string): string {
  const from = text.indexOf('://')
  const at = text.lastIndexOf('@')
  return from !== -1 && at > from ? `${text.slice(0, from)}://…${text.slice(at)}` : text
}

/** For messages about an unknown name: ` (did you mean 'rate'?)`, or nothing if no known name is near it. */
export function didYouMean(name: string, known: readonly string[]): string {
  const near = nearName(name, known, MIN_LENGTH_OF_HINTS)
  return near === undefined ? '' : ` (did you mean '${near}'?)`
}

/** The name that was probably meant: equal apart from case, a plural or a unit or, the longer they are, a few letters. */
export function nearName(name: string, known: readonly string[], minLength = MIN_LENGTH_FOR_ONE): string | undefined {
  const bare = bareName(name)
  const same = known.find((one) => bareName(one) === bare)
  return same ?? known.find((one) => isTypo(bare, one, minLength))
}

function isTypo(bare: string, known: string, minLength: number): boolean {
  const meant = bareName(known)
  if (known.length >= MIN_LENGTH_FOR_TWO) return distance(bare, meant) <= 2
  return meant.length >= minLength && (distance(bare, meant) <= 1 || areSwapped(bare, meant))
}

/** Minimum length for suggestions: shorter names are all within one edit. */
const MIN_LENGTH_FOR_TWO = 8
const MIN_LENGTH_FOR_ONE = 5
/** If the name is refused in any case. */
const MIN_LENGTH_OF_HINTS = 4

/** Whether two neighbouring letters have changed places. */
function areSwapped(one: string, other: string): boolean {
  const at = [...one].findIndex((letter, i) => letter !== other[i])
  const swapped = one.slice(0, at) + one.charAt(at + 1) + one.charAt(at) + one.slice(at + 2)
  return at !== -1 && swapped === other
}

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
