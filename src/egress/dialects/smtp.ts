import type { SmtpAnswer } from '../answer.ts'
import { type Concurrency, type Feedback, oneLine, type Pause } from '../feedback.ts'
import type { Dialect } from './dialect.ts'
import { type Because, fatal, pauseMs, pauseUnknown, retryJob, slowDown } from './said.ts'

/** One kind of reply and what it asks for. The first that matches counts. */
export interface SmtpReply {
  readonly matches: (answer: SmtpAnswer) => boolean
  readonly asks: (why: Because) => readonly Feedback[]
}

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

const GREYLIST_MS = 5 * MINUTE
/** KumoMTA's shaping rules suspend for that long. */
const YAHOO_MS = 2 * HOUR
/** Daily limits count over a rolling day; nobody says when it frees, so one job probes every hour. */
const DAILY_LIMIT_MS = HOUR
const FEW_CONNECTIONS_MS = 15 * MINUTE
/** What Exchange Online allows a mailbox at once. */
const EXCHANGE_CONNECTIONS = 3
const SHORT_PAUSE_MS = 5 * SECOND

/** Before MAIL FROM the server speaks of itself or of the account. */
const ABOUT_THE_MESSAGE = new Set(['EENVELOPE', 'EMESSAGE'])
/** RFC 4954 §6: these ask for a login, whichever command they answer. */
const ABOUT_THE_LOGIN = new Set([530, 534, 535, 538])
const BROKEN_CONNECTION = new Set(['ECONNECTION', 'ETIMEDOUT', 'ESOCKET', 'EDNS'])

const TOO_FAST =
  /throttl|too many (?:messages|mails|emails|requests)|too (?:fast|quickly)|\brate\b|per (?:second|minute|hour)/i
const DAILY = /\bdaily\b|per day|24[ -]?hours?|sending (?:quota|limit)|message quota/i

/** So many connections, until the destination has had time to forget. */
export function connections(limit: number, because: Because): Concurrency {
  return { kind: 'concurrency', scope: 'queue', ...because, limit, ttlMs: FEW_CONNECTIONS_MS }
}

/** A pause after which all go on: a rate that was too high for a moment needs no probe. */
export function breather(forMs: number, because: Because): Pause {
  return { ...pauseMs(forMs, because), hard: false }
}

export function is(answer: SmtpAnswer, ...replies: readonly number[]): boolean {
  return answer.status !== undefined && replies.includes(answer.status)
}

const isTransient = ({ status }: SmtpAnswer) => status !== undefined && status >= 400 && status < 500
const isPermanent = ({ status }: SmtpAnswer) => status !== undefined && status >= 500
const says = (pattern: RegExp) => (answer: SmtpAnswer) => pattern.test(answer.text)
const saysFast = says(TOO_FAST)
const saysDaily = says(DAILY)

/** RFC 5321 (replies), RFC 3463 (enhanced codes) and what servers make of them. */
const REPLIES: readonly SmtpReply[] = [
  // Yahoo, `[TSS04]`, `[TS01]`: deferred over complaints or reputation.
  { matches: (a) => isTransient(a) && /\[TSS?\d\d\]/.test(a.text), asks: (why) => [pauseMs(YAHOO_MS, why)] },
  // The server closes the connection, as it may after any command.
  { matches: (a) => is(a, 421), asks: (why) => [pauseUnknown(why, true), connections(1, why)] },
  // RFC 4954: 4.7.0 and 4.7.12 answer a login. Only a text about a rate makes a limit of them.
  { matches: (a) => isAboutLogin(a) && !(isTransient(a) && saysFast(a)), asks: () => [] },
  // Quotas that reset, and codes that say "never": 5.4.5 is Gmail's, 5.7.232, 5.7.233 and 5.1.90 are Exchange's.
  {
    matches: (a) => isPermanent(a) && (/^5\.(?:4\.5|7\.23[23]|1\.90)$/.test(a.enhanced ?? '') || isDailyRefusal(a)),
    asks: (why) => [pauseMs(DAILY_LIMIT_MS, why)],
  },
  // Exchange: too many connections or sending threads of one account.
  {
    matches: (a) => is(a, 432) || (isTransient(a) && /concurrent|too many connections/i.test(a.text)),
    asks: (why) => [breather(SHORT_PAUSE_MS, why), connections(EXCHANGE_CONNECTIONS, why)],
  },
  // First contact: expected, and over after some minutes. Postgrey says it with 4.2.0, sendmail's filters with 4.7.1.
  {
    matches: (a) => is(a, 450, 451) && (/gr[ae]y-?\s?list/i.test(a.text) || (a.enhanced === '4.7.1' && !saysFast(a))),
    asks: (why) => [retryJob(why, { ms: GREYLIST_MS, name: 'greylisting', source: 'smtp' })],
  },
  // One mailbox is busy, full or flooded (subject 2 of RFC 3463).
  { matches: ({ enhanced }) => /^4\.2\./.test(enhanced ?? ''), asks: (why) => [retryJob(why)] },
  { matches: (a) => isTransient(a) && saysDaily(a), asks: (why) => [pauseMs(DAILY_LIMIT_MS, why)] },
  {
    matches: (a) => isTransient(a) && saysFast(a),
    asks: (why) => [breather(SHORT_PAUSE_MS, why), slowDown(why)],
  },
  // Too many recipients for one message: no other job is touched. It fails until they are split.
  { matches: ({ enhanced }) => enhanced === '4.5.3', asks: (why) => [retryJob(why)] },
  // Out of resources; RFC 5321 says it with a bare 452.
  {
    matches: (a) => is(a, 452) && (a.enhanced === undefined || a.enhanced === '4.3.1'),
    asks: (why) => [pauseUnknown(why, true)],
  },
  { matches: isTransient, asks: (why) => [retryJob(why)] },
  {
    matches: (a) => ABOUT_THE_MESSAGE.has(a.code) && (a.status === undefined || isPermanent(a)),
    asks: (why) => [fatal(why)],
  },
  { matches: (a) => a.status === undefined && BROKEN_CONNECTION.has(a.code), asks: (why) => [retryJob(why)] },
]

function isAboutLogin({ code, status = 0, enhanced }: SmtpAnswer): boolean {
  return (
    code === 'EAUTH' || ABOUT_THE_LOGIN.has(status) || enhanced === '4.7.12' || (status === 454 && enhanced === '4.7.0')
  )
}

/**
 * A refusal of one mail must not stop a queue: "daily digests are spam" speaks of no quota, and a full mailbox (5.2.2) or a
 * mail that is too large (5.3.4) of none of the sender's.
 */
function isDailyRefusal(answer: SmtpAnswer): boolean {
  return saysDaily(answer) && /quota|limit/i.test(answer.text) && !/^5\.[23]\./.test(answer.enhanced ?? '')
}

/**
 * Any SMTP server, through nodemailer: connection limits, rates, quotas, greylisting, mailboxes and refusals. Login and
 * greeting refused for good, TLS and protocol faults say nothing here: they speak of the account or the configuration, so
 * the job fails as any other does, and nothing of the queue is given up for them.
 */
export const smtpDialect = smtpDialectWith([])

/** As {@link smtpDialect}, with replies that one provider means more by than RFC 5321 does. */
export function smtpDialectWith(own: readonly SmtpReply[]): Dialect<SmtpAnswer> {
  const replies = [...own, ...REPLIES]
  return (answer) => {
    const because: Because = { reason: reasonOf(answer), source: 'smtp' }
    return replies.find(({ matches }) => matches(answer))?.asks(because) ?? []
  }
}

/** The reply without the addresses in it: reasons are kept and shown where a job's data is not. */
function reasonOf({ text, code }: SmtpAnswer): string {
  const told = text === '' ? code : text.slice(0, 300)
  return oneLine(`SMTP: ${told.replaceAll(/[^\s<>"',;:]+@[^\s<>"',;]+/g, '…')}`)
}
