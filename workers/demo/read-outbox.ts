import { readFile } from 'node:fs/promises'
import { reasonOf } from 'sluice-programs'
import { bindStatement, type DatabaseWrite, type StatementCatalog } from 'sluice-workers/db-writes'
import { type Mail, readMessage } from 'sluice-workers/email'

/** A line of an outbox: a mail or a table write, with its job data. */
export type OutboxLine = { kind: 'email'; data: Mail } | { kind: 'write'; data: DatabaseWrite }

/** The file is not an outbox. Names the file, and the line where there is one. */
export class OutboxError extends Error {
  override readonly name = 'OutboxError'
}

function parseObject(text: string): Record<string, unknown> {
  const value: unknown = JSON.parse(text)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
  throw new TypeError(`expected a JSON object, got ${JSON.stringify(value).slice(0, 60)}`)
}

/**
 * Reads one line, and refuses what the worker would permanently refuse later.
 * @throws Error that names the expected and the actual value
 */
export function parseLine(text: string, statements: StatementCatalog): OutboxLine {
  const { kind, ...data } = parseObject(text)
  if (kind === 'email') {
    readMessage(data, { allowMultipleRecipients: false })
    return { kind, data: data as Mail }
  }
  if (kind === 'write') {
    bindStatement(statements, data)
    return { kind, data: data as DatabaseWrite }
  }
  throw new TypeError(`expected "kind" to be "email" or "write", got ${JSON.stringify(kind) ?? 'nothing'}`)
}

/**
 * Reads an outbox of NDJSON; blank lines are skipped.
 * @throws OutboxError for an unreadable or empty file, and for the first invalid line
 */
export async function readOutbox(file: string, statements: StatementCatalog): Promise<OutboxLine[]> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new OutboxError(`cannot read the input: ${reasonOf(error)}`, { cause: error })
  })
  // Some editors put a byte order mark before the first line.
  const lines = text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .flatMap((line, index) => {
      if (line.trim() === '') return []
      try {
        return [parseLine(line, statements)]
      } catch (error) {
        throw new OutboxError(`${file}, line ${index + 1}: ${reasonOf(error)}`, { cause: error })
      }
    })
  if (lines.length === 0) throw new OutboxError(`${file}: expected at least one line, got none`)
  return lines
}
