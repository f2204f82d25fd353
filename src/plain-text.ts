/** Control characters, of C1 too, ends of lines and paragraphs, and marks that turn the direction of writing. */
const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu

/**
 * Text of others, such as a job's name or a reason, as it may stand on a terminal: what could move the cursor, change
 * what was printed or turn its direction becomes visible.
 */
export function plainText(text: string): string {
  return text.replaceAll(UNSAFE, (character) => {
    if (character === '\n') return '\\n'
    if (character === '\t') return '\\t'
    return escaped(character)
  })
}

/** JSON that means the same and is as harmless on a terminal. */
export function plainJson(json: string): string {
  return json.replaceAll(UNSAFE, escaped)
}

function escaped(character: string): string {
  return `\\u${(character.codePointAt(0) as number).toString(16).padStart(4, '0')}`
}
