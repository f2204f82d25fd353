const MASK = '[redacted]'
/** Shorter ones would be found in texts that do not hold them. */
const MIN_SECRET_CHARACTERS = 4

/** A function that takes secrets out of a text: what a target sends back may hold what was sent to it. */
export function createMask(secrets: readonly string[]): (text: string) => string {
  const spellings = new Set(secrets.flatMap((secret) => [secret, JSON.stringify(secret).slice(1, -1)]))
  const masked = [...spellings].filter(({ length }) => length >= MIN_SECRET_CHARACTERS)
  // The longest first: a secret may be part of another.
  masked.sort((a, b) => b.length - a.length)
  return (text) => masked.reduce((left, secret) => left.replaceAll(secret, MASK), text)
}
