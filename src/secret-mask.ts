const MASK = '[redacted]'
/** Shorter secrets would match texts that do not contain them. */
const MIN_CHARACTERS = 4
/** Longer secrets are searched for in fewer spellings, because each character of a pattern costs time. */
const MAX_PATTERN_CHARACTERS = 512
/** Longest spelling of one character of a secret: percent-encoded four times. */
const MAX_SPELLING = 36

/** A backslash of JSON, or of JSON in a JSON string. */
const ESCAPE = String.raw`\\(?:\\\\)?`
const NAMED_ENTITIES: Readonly<Record<string, string>> = { '&': 'amp', '<': 'lt', '>': 'gt', '"': 'quot', "'": 'apos' }

/**
 * Builds a function that removes secrets from a text: unchanged, percent-encoded (up to four times, in part or whole),
 * in base64 (also within a longer text, such as `user:secret`), in hex, and escaped for JSON and HTML. Secrets of fewer
 * than four characters are too short to be found. For a secret that is base64 of a text, that text is removed too.
 *
 * @returns a function of a text and whether it was cut: a cut text may end within a secret, whose beginning is removed
 * as well
 */
export function createSecretMask(secrets: readonly string[]): (text: string, isCut?: boolean) => string {
  const forms = [...new Set(secrets.flatMap(formsOf))].filter(({ length }) => length >= MIN_CHARACTERS)
  if (forms.length === 0) return (text) => text
  // The longest first: a secret may be part of another.
  forms.sort((a, b) => b.length - a.length)
  const whole = new RegExp(forms.map(patternOf).join('|'), 'g')
  const heads = new RegExp(forms.map((form) => patternOf(form.slice(0, MIN_CHARACTERS))).join('|'))
  const reach = (forms[0]?.length ?? 0) * MAX_SPELLING
  return (text, isCut = false) => {
    const masked = text.replace(whole, MASK)
    if (!isCut) return masked
    const tail = Math.max(0, masked.length - reach)
    const at = masked.slice(tail).search(heads)
    return at === -1 ? masked : masked.slice(0, tail + at)
  }
}

function formsOf(secret: string): string[] {
  const texts = [secret, ...encodedTexts(secret)]
  return texts.flatMap((text) => {
    const hex = Buffer.from(text).toString('hex')
    const spelled = text.length > MAX_PATTERN_CHARACTERS ? [inJson(text), encodeURIComponent(text)] : []
    return [text, hex, hex.toUpperCase(), ...base64Cores(text), ...spelled]
  })
}

/** The decoded secret: `user:password` of basic authentication, and the password. */
function encodedTexts(secret: string): string[] {
  const text = Buffer.from(secret, 'base64').toString()
  const isBase64 =
    Buffer.from(text)
      .toString('base64')
      .replace(/={0,2}$/, '') === secret.replace(/={0,2}$/, '')
  if (!isBase64 || !/^[\x20-\x7e]+$/.test(text)) return []
  const colon = text.indexOf(':')
  return colon === -1 ? [text] : [text, text.slice(colon + 1)]
}

/** The part common to the base64 of all texts that contain this one, for each offset in a group of three bytes. */
function base64Cores(text: string): string[] {
  const bytes = Buffer.from(text)
  return [0, 1, 2].flatMap((before) => {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64')
    // Without the characters that also depend on the text before and after.
    const core = encoded.slice(before === 0 ? 0 : before + 1, Math.floor(((before + bytes.length) * 8) / 6))
    return [core, core.replaceAll('+', '-').replaceAll('/', '_')]
  })
}

function patternOf(form: string): string {
  if (form.length > MAX_PATTERN_CHARACTERS) return escaped(form)
  const parts = form.match(/\\+|[^\\]/gsu) ?? []
  return parts
    .map((part, i) => {
      const isAfterBackslash = parts[i - 1]?.startsWith('\\') === true
      const spellings = part.startsWith('\\')
        ? backslashes(part.length, parts[i + 1])
        : spellingsOf(part, isAfterBackslash)
      return `(?:${spellings.join('|')})`
    })
    .join('')
}

/**
 * Spellings of a run of backslashes: plain, in JSON, and in JSON within JSON, with the backslash that the next
 * character gets there. They are matched as one run: patterns for single backslashes would be tried in every
 * combination.
 */
function backslashes(count: number, next: string | undefined): string[] {
  const one = next !== undefined && inJson(next) !== next ? 1 : 0
  const lengths = [4 * count + 3 * one, 2 * count + one, count]
  return [
    `(?:%(?:25){0,3}5[cC]){${count}}`,
    `(?:${ESCAPE}u005[cC]){${count}}`,
    ...lengths.map((length) => `\\\\{${length}}`),
  ]
}

/** The plain character comes last: the rest of a cut escape would break the JSON around it. */
function spellingsOf(character: string, isAfterBackslash: boolean): string[] {
  const percent = [...Buffer.from(character)].map((byte) => `%(?:25){0,3}${hexPattern(byte, 2)}`).join('')
  const short = inJson(character)
  const before = isAfterBackslash ? '' : ESCAPE
  const units = Array.from({ length: character.length }, (_, i) => character.charCodeAt(i))
  const unicode = units.map((unit) => `${isAfterBackslash ? '\\\\' : ESCAPE}u${hexPattern(unit, 4)}`).join('')
  const code = character.codePointAt(0) as number
  const entity = NAMED_ENTITIES[character]
  return [
    percent,
    unicode,
    `&#(?:${code}|[xX]0{0,4}${hexPattern(code, 1)});`,
    ...(entity === undefined ? [] : [`&${entity};`]),
    ...(short === character ? [] : [`${before}${escaped(short.slice(1))}`]),
    ...(character === ' ' ? ['\\+'] : []),
    ...(character === '/' ? [`${before}/`] : []),
    escaped(character),
  ]
}

function inJson(text: string): string {
  return JSON.stringify(text).slice(1, -1)
}

/** In upper and lower case. */
function hexPattern(number: number, digits: number): string {
  const hex = number.toString(16).padStart(digits, '0')
  return [...hex].map((digit) => (/\d/.test(digit) ? digit : `[${digit}${digit.toUpperCase()}]`)).join('')
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
}
