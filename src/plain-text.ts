/** Control characters including C1, line and paragraph separators, and marks that change the text direction. */
const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu

/**
 * Makes untrusted text, such as a job's name or a reason, safe for a terminal: characters that could move the cursor,
 * change printed text or turn its direction are made visible.
 */
export function plainText(text: string): string {
  return text.replaceAll(UNSAFE, (character) => {
    if (character === '\n') return '\\n'
    if (character === '\t') return '\\t'
    return escaped(character)
  })
}

/** The same for JSON, without changing its meaning. */
export function plainJson(json: string): string {
  return json.replaceAll(UNSAFE, escaped)
}

function escaped(character: string): string {
  return `\\u${(character.codePointAt(0) as number).toString(16).padStart(4, '0')}`
}

const NUMBERS = new Intl.NumberFormat('en', { maximumFractionDigits: 2 })

/** A number of things: `1 job`, `1,200 jobs`. */
export function countText(count: number, noun: string): string {
  return `${NUMBERS.format(count)} ${noun}${count === 1 ? '' : 's'}`
}

/** Whether a text has no half of a surrogate pair, which has no form in UTF-8 and which Redis's JSON refuses. */
export function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text)
}
