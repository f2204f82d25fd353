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

/** Created at its first use: loading the data of a language takes longer than loading the library. */
let numbers: Intl.NumberFormat | undefined

/** A number of things: `1 job`, `1,200 jobs`. */
export function countText(count: number, noun: string): string {
  numbers ??= new Intl.NumberFormat('en', { maximumFractionDigits: 2 })
  return `${numbers.format(count)} ${noun}${count === 1 ? '' : 's'}`
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'] as const

/** Memory for display, to three digits. As Redis counts, 1 kB is 1,024 bytes. */
export function bytesText(bytes: number): string {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10))
  return `${Number((bytes / 1024 ** unit).toPrecision(3))} ${UNITS[unit]}`
}

/** A duration for display: at most two units, `—` for undefined. */
export function formatDuration(ms: number | undefined): string {
  if (ms === undefined) return '—'
  if (ms < 0) return `-${formatDuration(-ms)}`
  if (ms < 1000) return `${ms < 10 && ms > 0 ? Number(ms.toFixed(1)) : Math.round(ms)}ms`
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(ms < 10_000 ? 2 : 1))}s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 3600) return twoUnits(Math.floor(seconds / 60), 'm', seconds % 60, 's')
  const minutes = Math.round(seconds / 60)
  if (minutes < 1440) return twoUnits(Math.floor(minutes / 60), 'h', minutes % 60, 'm')
  const hours = Math.round(minutes / 60)
  return twoUnits(Math.floor(hours / 24), 'd', hours % 24, 'h')
}

function twoUnits(many: number, unit: string, few: number, small: string): string {
  return few === 0 ? `${many}${unit}` : `${many}${unit}${few}${small}`
}

/** Whether a text has no half of a surrogate pair, which has no form in UTF-8 and which Redis's JSON refuses. */
export function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text)
}
