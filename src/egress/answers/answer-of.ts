import type { AnswerTime, CallOutcome } from '../../feedback/source.ts'
import type { Answer, OtherAnswer } from '../answer.ts'
import { causesOf } from './causes.ts'
import { grpcAnswerOf } from './grpc.ts'
import { returnedHttpAnswerOf, thrownHttpAnswerOf } from './http.ts'
import { readText } from './read.ts'
import { smtpAnswerOf } from './smtp.ts'
import { sqlAnswerOf } from './sql.ts'

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
