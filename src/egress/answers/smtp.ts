import type { SmtpAnswer } from '../answer.ts'
import { read, readText } from './read.ts'

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
export function smtpAnswerOf(error: unknown): SmtpAnswer | undefined {
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
