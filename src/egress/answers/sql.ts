import type { SqlAnswer } from '../answer.ts'
import { read, readText } from './read.ts'

const SQLSTATE = /^[0-9A-Z]{5}$/

/** Messages of `pg` and its pool, without an SQLSTATE, for a connection that is not available or lost. */
const CONNECTION_TEXTS = new Set([
  'timeout exceeded when trying to connect',
  'timeout expired',
  'Connection terminated',
  'Connection terminated unexpectedly',
  'Connection terminated due to connection timeout',
  'Query read timeout',
  'The server does not support SSL connections',
  'There was an error establishing an SSL connection',
  'Client has encountered a connection error and is not queryable',
])

/**
 * The answer in an error of a database client: `pg` and postgres.js (`code` is an SQLSTATE, with a `severity`), mysql2
 * (`sqlState` with an `errno`), and `pg`'s own errors about connections, recognised by their messages.
 */
export function sqlAnswerOf(error: unknown, latencyMs: number): SqlAnswer | undefined {
  const sqlstate = sqlstateOf(error)
  const text = readText(error, 'message')
  if (sqlstate === '' && !CONNECTION_TEXTS.has(text)) return undefined
  return {
    protocol: 'sql',
    failed: true,
    text,
    name: readText(error, 'name'),
    code: readText(error, 'code'),
    latencyMs,
    ...(sqlstate !== '' && { sqlstate }),
  }
}

function sqlstateOf(error: unknown): string {
  const code = readText(error, 'code')
  const isPostgres = readText(error, 'severity') !== '' && SQLSTATE.test(code)
  if (isPostgres) return code
  const state = readText(error, 'sqlState')
  return typeof read(error, 'errno') === 'number' && SQLSTATE.test(state) ? state : ''
}
