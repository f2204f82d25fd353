import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import type { ShapedJobsOptions } from 'sluice'
import { checkJobOptions, countText, InvalidInputError } from 'sluice/internal'
import { CommandError, EXIT_CODES } from './cli.ts'

/** What is known about a file once it has been read completely. */
export interface CheckedFile {
  readonly jobs: number
  /** SHA-256 of the content. */
  readonly hash: string
}

/**
 * Reads a whole file and checks every line.
 * @throws CommandError for a file that cannot be read, and for the first invalid line
 */
export async function checkJobFile(file: string): Promise<CheckedFile> {
  const hash = createHash('sha256')
  let jobs = 0
  for await (const { fingerprint } of jobsIn(createReadStream(file), file)) {
    hash.update(fingerprint)
    jobs += 1
  }
  return { jobs, hash: hash.digest('base64url').slice(0, 27) }
}

/** The jobs of a file, in order. @throws as {@link checkJobFile} */
export function jobsOfFile(file: string): AsyncGenerator<JobLine> {
  return jobsIn(createReadStream(file), file)
}

/** The jobs of a stream; `called` names it in errors. @throws as {@link checkJobFile} */
export async function* jobsIn(stream: AsyncIterable<Buffer | string>, called: string): AsyncGenerator<JobLine> {
  let number = 0
  for await (const text of linesOf(stream, called)) {
    number += 1
    if (text.trim() !== '') yield parseJobLine(text, number)
  }
}

async function* linesOf(stream: AsyncIterable<Buffer | string>, called: string): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for await (const chunk of stream) {
      const lines = (rest + (typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true }))).split(
        /\r?\n/,
      )
      rest = lines.pop() as string
      yield* lines
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined) throw error
    throw new CommandError(EXIT_CODES.usage, `cannot read ${called}: ${message}`, { cause: error })
  }
  if (rest !== '') yield rest
}

/** A job read from a file of jobs. */
export interface JobLine {
  /** From 1; empty lines count. */
  readonly line: number
  readonly name: string
  readonly data: unknown
  readonly opts: ShapedJobsOptions
  /** SHA-256 of the line. */
  readonly fingerprint: string
}

const FIELDS = ['name', 'data', 'opts']

const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value) && value >= 0
const isBoolean = (value: unknown) => typeof value === 'boolean'
const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)
const isKept = (value: unknown) => isBoolean(value) || isNumber(value) || isObject(value)

/** The options that a line may give, and the type of each; `add` checks costs, ids and deadlines. */
const OPTIONS: Readonly<Record<string, readonly [expected: string, ok: (value: unknown) => boolean]>> = {
  attempts: ['a number', isNumber],
  backoff: ['a number of ms, or an object', (value) => isNumber(value) || isObject(value)],
  cost: ['a number', isNumber],
  costs: ['an object', isObject],
  delay: ['a number of ms', isNumber],
  group: ['an object such as {"id":"tenant-42"}', isObject],
  keys: ['an object such as {"model":"large"}', isObject],
  jobId: ['a text', (value) => typeof value === 'string'],
  keepLogs: ['a number', isNumber],
  lifo: ['true or false', isBoolean],
  mustStartBefore: ['a time: ISO 8601, or ms since 1970', (value) => isNumber(value) || typeof value === 'string'],
  priority: ['a number', isNumber],
  removeOnComplete: ['true, false, a number or an object', isKept],
  removeOnFail: ['true, false, a number or an object', isKept],
  sizeLimit: ['a number of bytes', isNumber],
  stackTraceLimit: ['a number', isNumber],
  tier: ['a text', (value) => typeof value === 'string'],
  timestamp: ['a number of ms since 1970', isNumber],
}

/**
 * Reads a line: `{"name": …, "data": …, "opts": {…}}`, where `data` and `opts` may be left out.
 * @throws CommandError naming the line, the expected and the actual value. It never repeats the data of a job.
 */
export function parseJobLine(text: string, line: number): JobLine {
  const { name, data = {}, opts = {}, ...others } = asObject(text, line)
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw wrong(line, `expected only ${FIELDS.join(', ')}; got '${unknown}'`)
  if (typeof name !== 'string' || name === '') throw wrong(line, `expected a name, a text; got ${kindOf(name)}`)
  if (!isObject(opts)) throw wrong(line, `expected opts to be an object; got ${kindOf(opts)}`)
  const fingerprint = createHash('sha256').update(text).digest('base64url')
  return { line, name, data, opts: readOptions(opts as Record<string, unknown>, line), fingerprint }
}

function asObject(text: string, line: number): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw wrong(line, 'expected an object in JSON; got a text that is no JSON')
  }
  if (!isObject(value)) throw wrong(line, `expected an object in JSON; got ${kindOf(value)}`)
  return value as Record<string, unknown>
}

function readOptions(given: Readonly<Record<string, unknown>>, line: number): ShapedJobsOptions {
  for (const [name, value] of Object.entries(given)) {
    const [expected, ok] = (Object.hasOwn(OPTIONS, name) && OPTIONS[name]) || []
    if (!ok) throw wrong(line, `opts has no '${name}' here; expected ${Object.keys(OPTIONS).join(', ')}`)
    if (!ok(value)) throw wrong(line, `expected opts.${name} to be ${expected}; got ${kindOf(value)}`)
  }
  const { mustStartBefore } = given
  const opts = typeof mustStartBefore === 'string' ? { ...given, mustStartBefore: new Date(mustStartBefore) } : given
  try {
    checkJobOptions(opts as ShapedJobsOptions)
  } catch (error) {
    if (!(error instanceof InvalidInputError)) throw error
    throw wrong(line, error.message)
  }
  return opts as ShapedJobsOptions
}

function wrong(line: number, problem: string): CommandError {
  return new CommandError(EXIT_CODES.usage, `line ${line}: ${problem}`)
}

function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing'
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return String(value)
  return Array.isArray(value)
    ? 'a list'
    : typeof value === 'object'
      ? 'an object'
      : countText(String(value).length, 'character')
}
