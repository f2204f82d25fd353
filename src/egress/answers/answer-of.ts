import type { AnswerTime, CallOutcome } from '../../feedback/source.ts'
import type { Answer, HttpAnswer, OtherAnswer, SmtpAnswer, SqlAnswer } from '../answer.ts'
import { causesOf } from './causes.ts'
import { headersOf } from './headers.ts'
import { returnedHttpAnswerOf, thrownHttpAnswerOf } from './http.ts'
import { read, readText } from './read.ts'

const MAX_TEXT = 2000

/**
 * The downstream's answer, found in the value that a processor threw or returned. Libraries are recognised by the
 * shapes of their objects, never by their classes, so that several copies and versions of one all work: fetch, undici,
 * axios, got, Octokit, the AWS SDK v3, Stripe, OpenAI, Anthropic, grpc-js, nodemailer, pg, postgres.js and mysql2. An
 * error is examined together with its causes and the parts of an AggregateError; the nearest recognised one counts.
 *
 * Never throws, keeps at most 64 kB of text, and reads no stream.
 * @param at default: it arrived just now, without latency
 * @returns always an answer for a thrown value; undefined for a returned value that is not an HTTP response
 */
export function answerOf(outcome: Extract<CallOutcome, { threw: unknown }>, at?: AnswerTime): Answer
export function answerOf(outcome: CallOutcome, at?: AnswerTime): Answer | undefined
export function answerOf(
  outcome: CallOutcome,
  at: AnswerTime = { receivedAtMs: Date.now(), latencyMs: 0 },
): Answer | undefined {
  if ('returned' in outcome) return returnedHttpAnswerOf(outcome.returned, at.receivedAtMs)
  const causes = causesOf(outcome.threw)
  for (const error of causes) {
    const answer =
      sqlAnswerOf(error, at.latencyMs) ??
      smtpAnswerOf(error) ??
      grpcAnswerOf(error, at.receivedAtMs) ??
      thrownHttpAnswerOf(error, at.receivedAtMs)
    if (answer) return answer
  }
  return otherAnswerOf(causes)
}

/** fetch throws "fetch failed", and an AggregateError has no message: the code and the reason are in the cause. */
function otherAnswerOf(causes: readonly unknown[]): OtherAnswer {
  const [thrown] = causes
  const text = typeof thrown === 'string' ? thrown : (causes.map(messageOf).find((one) => one !== '') ?? '')
  const coded = causes.find((error) => readText(error, 'code') !== '')
  const cause = messageOf(coded)
  return {
    protocol: 'other',
    failed: true,
    text: (text.includes(cause) ? text : `${text}: ${cause}`).slice(0, MAX_TEXT),
    name: readText(thrown, 'name'),
    code: readText(coded, 'code'),
  }
}

function messageOf(error: unknown): string {
  return readText(error, 'message')
}

/** gRPC's codes by number, with the HTTP status that google/rpc/code.proto gives each. */
const CODES: Readonly<Record<number, readonly [name: string, status: number]>> = {
  1: ['CANCELLED', 499],
  2: ['UNKNOWN', 500],
  3: ['INVALID_ARGUMENT', 400],
  4: ['DEADLINE_EXCEEDED', 504],
  5: ['NOT_FOUND', 404],
  6: ['ALREADY_EXISTS', 409],
  7: ['PERMISSION_DENIED', 403],
  8: ['RESOURCE_EXHAUSTED', 429],
  9: ['FAILED_PRECONDITION', 400],
  10: ['ABORTED', 409],
  11: ['OUT_OF_RANGE', 400],
  12: ['UNIMPLEMENTED', 501],
  13: ['INTERNAL', 500],
  14: ['UNAVAILABLE', 503],
  15: ['DATA_LOSS', 500],
  16: ['UNAUTHENTICATED', 401],
}

/** The answer in a ServiceError of @grpc/grpc-js: `code`, `details` and `metadata` serve as status and headers. */
function grpcAnswerOf(error: unknown, receivedAtMs: number): HttpAnswer | undefined {
  const code = read(error, 'code')
  const metadata = read(error, 'metadata')
  if (typeof code !== 'number' || !Object.hasOwn(CODES, code)) return undefined
  if (typeof read(error, 'details') !== 'string' || typeof read(metadata, 'getMap') !== 'function') return undefined
  const [name, status] = CODES[code] as readonly [string, number]
  return {
    protocol: 'http',
    failed: true,
    text: readText(error, 'message'),
    name: readText(error, 'name'),
    code: name,
    status,
    // grpc-js does not expose this trailer.
    headers: { ...headersOf(metadata), 'grpc-status': String(code) },
    receivedAtMs,
  }
}

/**
 * Class, subject and detail of RFC 3463. Not part of a longer run of numbers and dots, such as the IP address
 * 5.188.10.20 in a reply.
 */
const ENHANCED = /(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?!\.?\d)/g

/** Codes of nodemailer about a connection, a login or a message. */
const NODEMAILER_CODES = new Set([
  ...['ECONNECTION', 'ESOCKET', 'EDNS', 'ETLS', 'EREQUIRETLS', 'EPROTOCOL', 'EMAXLIMIT'],
  ...['EENVELOPE', 'EMESSAGE', 'EMAXRECIPIENTS', 'EAUTH', 'ENOAUTH', 'EOAUTH2'],
])

/** The answer in an error of nodemailer: a reply (`responseCode`, `response`), or one of its own codes. */
function smtpAnswerOf(error: unknown): SmtpAnswer | undefined {
  const status = replyCode(read(error, 'responseCode'))
  const code = readText(error, 'code')
  const command = readText(error, 'command')
  const cause = readText(error, 'originalCode')
  // ETIMEDOUT is also a code of the system; nodemailer's names the unanswered command.
  const isNodemailers = NODEMAILER_CODES.has(code) || (code === 'ETIMEDOUT' && command !== '')
  if (status === undefined && !isNodemailers) return undefined
  const text = textOf(error)
  const enhanced = status === undefined ? undefined : enhancedOf(text, status)
  return {
    protocol: 'smtp',
    failed: true,
    text,
    name: readText(error, 'name'),
    code,
    ...(status !== undefined && { status }),
    ...(enhanced !== undefined && { enhanced }),
    ...(command !== '' && { command }),
    ...(cause !== '' && { cause }),
    ...(read(error, 'unsent') === true && { unsent: true }),
  }
}

function replyCode(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 200 && value <= 599 ? value : undefined
}

/** nodemailer's message ends in the reply; other errors of this shape may have them apart. */
function textOf(error: unknown): string {
  const message = readText(error, 'message')
  const reply = readText(error, 'response')
  return message.includes(reply) ? message : `${message}: ${reply}`
}

/** Only a code of the reply's own class counts: a 421 that quotes an earlier 5.7.1 is still a 421. */
function enhancedOf(text: string, status: number): string | undefined {
  const codes = [...text.matchAll(ENHANCED)].map(([found]) => found)
  return codes.find((found) => found[0] === String(status)[0])
}

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
function sqlAnswerOf(error: unknown, latencyMs: number): SqlAnswer | undefined {
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
