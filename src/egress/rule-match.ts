import { oneLine } from '../feedback/feedback.ts'
import type { Answer } from './answer.ts'
import { checkFields, describe, InvalidRuleError, refuse } from './rule-error.ts'

/** A substring, ignoring case, or a regular expression, also as a string between slashes: '/busy|later/i'. */
export type Pattern = string | RegExp

/** One value, or a list of which one must match. */
export type OneOf<T> = T | readonly T[]

/** Conditions on an answer. All given fields must match; at least one is required. */
export interface Match {
  /** HTTP status or SMTP reply code: 429, or a class: '5xx', '4yz'. */
  readonly status?: OneOf<number | string>
  /** An error's code or name, exactly: 'ECONNRESET', 'ThrottlingException'. */
  readonly code?: OneOf<string>
  /** Enhanced status code of RFC 3463: '4.7.1', '4.7.*', '4.*.*'. */
  readonly enhanced?: OneOf<string>
  /** SQLSTATE, or a class: '53300', '53*'. */
  readonly sqlstate?: OneOf<string>
  /** By name, ignoring case. All names must match. */
  readonly header?: Readonly<Record<string, OneOf<Pattern>>>
  /**
   * In the error's text, or in the body: JSON if it is an object. Only the first 10,000 characters of each are read.
   */
  readonly text?: OneOf<Pattern>
}

/** One requirement of a rule. */
export interface Condition {
  /** 'status', 'header.x-reason' … */
  readonly key: string
  /** As written in the rule. */
  readonly expected: string
  /** The answer's values for it: any of them may match. */
  readonly read: (answer: Answer) => readonly string[]
  readonly holds: (value: string) => boolean
}

type Test = (value: string) => boolean

interface Key {
  readonly expected: string
  /** undefined for a value that is not valid here. */
  readonly compile: (wanted: unknown, path: string) => Test | undefined
  readonly read: (answer: Answer) => readonly (string | number | undefined)[]
}

const MAX_TEXT = 10_000
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const SLASHED = /^\/(.+)\/([a-z]*)$/s
const PATTERN = "a non-empty string, a regular expression such as '/busy|later/i', or a list of these"

const KEYS: Readonly<Record<Exclude<keyof Match, 'header'>, Key>> = {
  status: {
    expected: "a status from 100 to 599, a class such as '5xx' or '4yz', or a list of these",
    compile: statusTest,
    read: (answer) => ('status' in answer ? [answer.status] : []),
  },
  code: {
    expected: "an error's code or name such as 'ECONNRESET', or a list of these",
    compile: (wanted) => (typeof wanted === 'string' && wanted !== '' ? (value) => value === wanted : undefined),
    read: ({ code, name }) => [code, name],
  },
  enhanced: {
    expected: "an enhanced status code such as '4.7.1' or '4.7.*', or a list of these",
    compile: (wanted) => starTest(wanted, /^[245](\.(\d{1,3}|\*)){2}$/),
    read: (answer) => (answer.protocol === 'smtp' ? [answer.enhanced] : []),
  },
  sqlstate: {
    expected: "an SQLSTATE such as '53300', a class such as '53*', or a list of these",
    compile: (wanted) => starTest(wanted, /^[0-9A-Z]{2}([0-9A-Z]{3}|\*)$/),
    read: (answer) => (answer.protocol === 'sql' ? [answer.sqlstate] : []),
  },
  text: { expected: PATTERN, compile: patternTest, read: textsOf },
}
const FIELDS = [...Object.keys(KEYS), 'header']

/**
 * Validates the conditions of a rule and compiles them in a fixed order.
 * @throws InvalidRuleError
 */
export function compileMatch(path: string, match: Match): readonly Condition[] {
  checkFields(path, match, FIELDS)
  const conditions = Object.entries(KEYS).flatMap(([name, key]) => {
    const wanted = match[name as keyof typeof KEYS]
    return wanted === undefined ? [] : [compileKey(name, `${path}.${name}`, wanted, key)]
  })
  if (match.header !== undefined) conditions.push(...compileHeaders(`${path}.header`, match.header))
  if (conditions.length > 0) return conditions
  throw new InvalidRuleError(`${path} needs at least one of ${FIELDS.join(', ')}; got none`)
}

export function holds(condition: Condition, answer: Answer): boolean {
  return condition.read(answer).some(condition.holds)
}

function compileKey(name: string, path: string, wanted: unknown, { expected, compile, read }: Key): Condition {
  const list: readonly unknown[] = Array.isArray(wanted) ? wanted : [wanted]
  const tests = list.map((one) => compile(one, path) ?? refuse(path, expected, wanted))
  if (tests.length === 0) refuse(path, expected, wanted)
  return {
    key: name,
    expected: describe(wanted),
    read: (answer) =>
      read(answer)
        .filter((value) => value !== undefined && value !== '')
        .map(String),
    holds: (value) => tests.some((test) => test(value)),
  }
}

function compileHeaders(path: string, header: NonNullable<Match['header']>): readonly Condition[] {
  const isObject = typeof header === 'object' && header !== null && !Array.isArray(header)
  const names = isObject ? Object.keys(header) : []
  if (names.length === 0)
    refuse(path, "an object of header names and patterns, such as { 'x-reason': 'burst' }", header)
  return names.toSorted().map((name) => {
    if (!HEADER_NAME.test(name)) refuse(path, 'an object of header names and patterns', header)
    const lower = name.toLowerCase()
    return compileKey(`header.${lower}`, `${path}['${name}']`, header[name], {
      expected: PATTERN,
      compile: patternTest,
      read: (answer) =>
        answer.protocol === 'http' && Object.hasOwn(answer.headers, lower) ? [answer.headers[lower]] : [],
    })
  })
}

function statusTest(wanted: unknown): Test | undefined {
  if (Number.isInteger(wanted) && (wanted as number) >= 100 && (wanted as number) <= 599) {
    return (value) => value === String(wanted)
  }
  if (typeof wanted !== 'string' || !/^[1-5](xx|yz)$/i.test(wanted)) return undefined
  return (value) => value.length === 3 && value[0] === wanted[0]
}

/** Compares with a pattern in which '*' matches letters and digits. */
function starTest(wanted: unknown, form: RegExp): Test | undefined {
  if (typeof wanted !== 'string' || !form.test(wanted)) return undefined
  const pattern = new RegExp(`^${wanted.replaceAll('.', '\\.').replaceAll('*', '\\w+')}$`)
  return (value) => pattern.test(value)
}

function patternTest(wanted: unknown, path: string): Test | undefined {
  const pattern = typeof wanted === 'string' ? slashed(wanted, path) : wanted
  // search() begins at the start of the text, even for a pattern with the flag g that was used before.
  if (pattern instanceof RegExp) return (value) => value.search(pattern) !== -1
  if (typeof pattern !== 'string' || pattern === '') return undefined
  const part = pattern.toLowerCase()
  return (value) => value.toLowerCase().includes(part)
}

/** Compiles a regular expression between slashes; returns any other string unchanged. */
function slashed(text: string, path: string): Pattern {
  const [, source, flags] = SLASHED.exec(text) ?? []
  if (source === undefined) return text
  try {
    return new RegExp(source, flags)
  } catch (error) {
    throw new InvalidRuleError(
      `${path} must be a regular expression that compiles; got ${describe(text)}: ${oneLine((error as Error).message)}`,
    )
  }
}

/** Bodies are turned into JSON once for all rules. */
const bodies = new WeakMap<Answer, string>()

function textsOf(answer: Answer): readonly string[] {
  if (answer.protocol !== 'http' || answer.body === undefined) return [answer.text.slice(0, MAX_TEXT)]
  const body = bodies.get(answer) ?? (typeof answer.body === 'string' ? answer.body : describe(answer.body))
  bodies.set(answer, body)
  return [answer.text, body].map((text) => text.slice(0, MAX_TEXT))
}
