import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { CommandError } from './cli.ts'
import { EXIT_CODES } from './exit-codes.ts'
import { type JobLine, parseJobLine } from './job-lines.ts'

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
