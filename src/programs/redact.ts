const MASK = '[redacted]'
const MIN_SECRET_LENGTH = 4

// Greedy up to the last @ before the host ends, so that a password holding an unescaped @ is covered whole. No scheme is
// looked for: a search that begins at each letter of a long word takes the square of its length.
const URL_CREDENTIALS = /:\/\/[^\s"'<>\\/]*@/g

/** Takes secrets out of a text. */
export type Scrubber = (text: string) => string

/**
 * Builds a function that masks secrets wherever they stand inside a text: the credentials of any URL, and the given
 * secrets themselves, their user names and passwords included, also as they look inside JSON or percent-encoded.
 *
 * A logger that redacts by path cannot do this: drivers put URLs and passwords into error messages.
 *
 * @param secretTexts whole values that are secret, such as a connection URL or a token.
 */
export function createScrubber(secretTexts: readonly string[]): Scrubber {
  const secrets = [...new Set(secretTexts.flatMap(secretParts).flatMap(spellings))]
    .filter((secret) => secret.length >= MIN_SECRET_LENGTH)
    // The longest first: a password must not be cut out of the URL that holds it, leaving the rest behind.
    .sort((a, b) => b.length - a.length)
  return (text) => {
    const withoutSecrets = secrets.reduce((scrubbed, secret) => scrubbed.replaceAll(secret, MASK), text)
    return withoutSecrets.replaceAll(URL_CREDENTIALS, `://${MASK}@`)
  }
}

/** A URL is no secret without its credentials: masking host and port would make the messages useless. */
function secretParts(text: string): string[] {
  if (!URL.canParse(text)) return [text]
  const url = new URL(text)
  const parameters = [...url.searchParams].filter(([name]) => /pass|secret|token|key/i.test(name))
  return [url.password, ...parameters.map(([, value]) => value)]
}

function spellings(secret: string): string[] {
  const decoded = decodedOr(secret)
  return [secret, decoded, encodeURIComponent(decoded)].flatMap((text) => [text, JSON.stringify(text).slice(1, -1)])
}

function decodedOr(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
