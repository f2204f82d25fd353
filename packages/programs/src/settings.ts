import { countText } from 'sluice/internal'
import { z } from 'zod'
import { type SettingProblem, SettingsError } from './errors.ts'

/** One environment variable: how it is read and explained, and whether it is kept out of messages. */
export interface Setting<T> {
  readonly variable: string
  /** Ends the sentence "expected …" and explains the variable in `--help`. */
  readonly expected: string
  readonly schema: z.ZodType<T, string>
  /** The text used when the variable is unset or empty. Without one the variable is required. */
  readonly fallback?: string
  /** The value may hold a credential: it is never printed. */
  readonly secret?: boolean
}

export type SettingTable = Readonly<Record<string, Setting<unknown>>>

/** The settings that a table describes, under the table's own names. */
export type SettingsOf<T extends SettingTable> = {
  readonly [K in keyof T]: T[K] extends Setting<infer V> ? V : never
}

const SHOWN_CHARACTERS = 60

/**
 * Reads the settings of a table from the environment. An empty variable counts as unset.
 *
 * @throws SettingsError with one line for each setting that is wrong.
 */
export function readSettings<T extends SettingTable>(table: T, env: NodeJS.ProcessEnv): SettingsOf<T> {
  const values: Record<string, unknown> = {}
  const problems: SettingProblem[] = []
  for (const [name, setting] of Object.entries(table)) {
    const given = env[setting.variable] || undefined
    const text = given ?? setting.fallback
    const result = text === undefined ? undefined : setting.schema.safeParse(text)
    if (result?.success) values[name] = result.data
    else problems.push(...problemsOf(setting, given, result?.error))
  }
  if (problems.length > 0) throw new SettingsError(problems)
  return values as SettingsOf<T>
}

/** The values of a table's secret variables in the environment, for the redaction of the log. */
export function secretTexts(table: SettingTable, env: NodeJS.ProcessEnv): string[] {
  return Object.values(table).flatMap(({ secret, variable }) => (secret && env[variable] ? [env[variable]] : []))
}

/** The `--help` lines of a table. */
export function describeSettings(table: SettingTable): string {
  const settings = Object.values(table)
  const width = Math.max(...settings.map(({ variable }) => variable.length))
  return settings
    .map(({ variable, expected, fallback }) => {
      const otherwise = fallback === undefined ? ' (required)' : fallback === '' ? '' : ` (default ${fallback})`
      return `  ${variable.padEnd(width)}  ${expected}${otherwise}`
    })
    .join('\n')
}

function problemsOf(setting: Setting<unknown>, given: string | undefined, error?: z.ZodError): SettingProblem[] {
  const { variable, expected } = setting
  const explained = error?.issues.filter((issue) => issue.code === 'custom' && issue.params?.explained === true) ?? []
  if (explained.length > 0) return explained.map(({ message }) => ({ variable, problem: message }))
  return [{ variable, problem: `expected ${expected}, got ${cameText(setting, given)}` }]
}

function cameText({ secret }: Setting<unknown>, given: string | undefined): string {
  if (given === undefined) return 'nothing'
  if (secret) return `a text of ${countText(given.length, 'character')} (not shown: it may hold a password)`
  return JSON.stringify(given.length > SHOWN_CHARACTERS ? `${given.slice(0, SHOWN_CHARACTERS)}…` : given)
}

/** A whole number within bounds, in decimal digits. */
export function wholeNumber(min: number, max: number): z.ZodType<number, string> {
  return z
    .string()
    .regex(/^\d{1,15}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))
}

/** `true`, `false`, `1` or `0`. */
export const yesOrNo: z.ZodType<boolean, string> = z
  .enum(['true', 'false', '1', '0'])
  .transform((text) => text === 'true' || text === '1') as z.ZodType<boolean, string>

/** One of some names. */
export function oneOf<const N extends string>(names: readonly N[]): z.ZodType<N, string> {
  return z.enum(names as readonly [N, ...N[]]) as unknown as z.ZodType<N, string>
}

/** A URL with one of the protocols (each with its colon, such as `redis:`) and a host. */
export function urlWith(protocols: readonly string[]): z.ZodType<string, string> {
  return z.string().refine((text) => {
    const url = URL.canParse(text) ? new URL(text) : undefined
    return url !== undefined && protocols.includes(url.protocol) && url.hostname !== ''
  })
}

/** Text that satisfies a pattern. */
export function textLike(pattern: RegExp): z.ZodType<string, string> {
  return z.string().regex(pattern)
}

/**
 * Text read by a function that throws an error for invalid text. The error's message replaces the sentence "expected …,
 * came …"; each line of the message is one problem.
 */
export function readBy<T>(read: (text: string) => T): z.ZodType<T, string> {
  return z.string().transform((text, context) => {
    try {
      return read(text)
    } catch (error) {
      for (const message of (error instanceof Error ? error.message : String(error)).split('\n')) {
        context.addIssue({ code: 'custom', message, params: { explained: true } })
      }
      return z.NEVER
    }
  })
}
