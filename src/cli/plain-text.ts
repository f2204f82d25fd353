/**
 * Text of others, such as a job's name or a reason, as it may stand on a terminal: control characters, which could move
 * the cursor or change what was printed, and marks that turn the direction of writing, become visible.
 */
export function plainText(text: string): string {
  return text.replaceAll(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu, (character) => {
    if (character === '\n') return '\\n'
    if (character === '\t') return '\\t'
    return `\\u${(character.codePointAt(0) as number).toString(16).padStart(4, '0')}`
  })
}
