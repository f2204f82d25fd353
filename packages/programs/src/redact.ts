import { createSecretMask } from 'sluice/internal'

const MASK = '[redacted]'

// Greedy up to the last @ before the host ends, so that a password with an unescaped @ is covered whole. The scheme is
// not matched: a match that could begin at each letter of a long word would take quadratic time.
const URL_CREDENTIALS = /:\/\/[^\s"'<>\\/]*@/g

/** Removes secrets from a text. */
export type Scrubber = (text: string) => string

/**
 * Builds a function that masks secrets anywhere in a text: the credentials of any URL, and the given secrets
 * themselves, including passwords in URLs, in all spellings of {@link createSecretMask}.
 *
 * A logger that redacts by path cannot do this: drivers put URLs and passwords into error messages.
 * @param secretTexts whole values that are secret, such as a connection URL or a token.
 */
export function createScrubber(secretTexts: readonly string[]): Scrubber {
  const mask = createSecretMask(secretTexts.flatMap(secretParts).flatMap((text) => [text, decodedOr(text)]))
  return (text) => mask(text).replaceAll(URL_CREDENTIALS, `://${MASK}@`)
}

/** Only the credentials of a URL are secret: masking host and port would make the messages useless. */
function secretParts(text: string): string[] {
  if (!URL.canParse(text)) return [text]
  const url = new URL(text)
  const parameters = [...url.searchParams].filter(([name]) => /pass|secret|token|key/i.test(name))
  return [url.password, ...parameters.map(([, value]) => value)]
}

function decodedOr(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
