import { readFileSync, statSync } from 'node:fs'
import { InvalidInputError } from 'sluice/internal'
import { z } from 'zod'
import type { TokenEntry } from './token-entry.ts'

const WORLD_READABLE = 0o004
const NAME = /^[A-Za-z0-9][\w.@-]{0,63}$/

/** Thrown when a token file cannot be read or is invalid. Names the entries, never their contents. */
export class InvalidTokenFileError extends InvalidInputError {
  constructor(
    readonly file: string,
    readonly problems: readonly string[],
    options?: ErrorOptions,
  ) {
    super(problems.map((problem) => `${file}: ${problem}`).join('\n'), options)
  }
}

const word = (what: string) => z.string(`expected ${what}`).regex(NAME, `expected ${what}`)

const entrySchema = z.strictObject({
  name: word('a name of 1 to 64 letters, digits and _.@-'),
  sha256: z
    .string('expected the SHA-256 of a token, 64 hexadecimal digits')
    .regex(/^[0-9a-f]{64}$/i, 'expected the SHA-256 of a token, 64 hexadecimal digits'),
  queues: z.array(z.string().min(1)).min(1, 'expected at least one queue; leave it out for all').optional(),
  tier: word('a tier of 1 to 64 letters, digits and _.@-').optional(),
  trafficClass: word('a class of 1 to 64 letters, digits and _.@-').optional(),
})

const fileSchema = z.array(entrySchema, 'expected a list of tokens: [{"name": "…", "sha256": "…"}]').min(1, {
  message: 'expected at least one token',
})

/**
 * Reads a token file: a JSON list of entries `{ name, sha256, queues?, tier?, trafficClass? }`.
 *
 * @throws InvalidTokenFileError with everything that is wrong.
 */
export function readTokenFile(file: string): readonly TokenEntry[] {
  const parsed = fileSchema.safeParse(parseJson(file, readText(file)))
  if (!parsed.success) throw new InvalidTokenFileError(file, parsed.error.issues.map(describeIssue))
  const twice = twiceNamed(parsed.data)
  if (twice.length > 0) throw new InvalidTokenFileError(file, twice)
  return parsed.data
}

/** Whether every user of the machine may read the file. Always false if files have no such modes (Windows). */
export function isWorldReadable(file: string): boolean {
  return process.platform !== 'win32' && (statSync(file).mode & WORLD_READABLE) !== 0
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new InvalidTokenFileError(file, [(error as Error).message], { cause: error })
  }
}

// A parser's message quotes what it could not parse, which may be a token.
function parseJson(file: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new InvalidTokenFileError(file, ['expected JSON'])
  }
}

function describeIssue({ code, path, message, ...issue }: z.core.$ZodIssue): string {
  const [index, ...fields] = path
  const where =
    index === undefined ? '' : `token ${Number(index) + 1}${fields.map((field) => `.${String(field)}`).join('')}: `
  if (code !== 'unrecognized_keys') return `${where}${message}`
  const known = Object.keys(entrySchema.shape).join(', ')
  return `${where}expected only ${known}, got ${(issue as { keys?: string[] }).keys?.length ?? 0} other field(s) as well`
}

function twiceNamed(entries: readonly TokenEntry[]): string[] {
  const problems: string[] = []
  const names = new Set<string>()
  const hashes = new Set<string>()
  for (const [index, { name, sha256 }] of entries.entries()) {
    if (names.has(name)) problems.push(`token ${index + 1}: expected a unique name, got "${name}" again`)
    if (hashes.has(sha256.toLowerCase())) problems.push(`token ${index + 1}: its hash is in the file twice`)
    names.add(name)
    hashes.add(sha256.toLowerCase())
  }
  return problems
}
