import { type Concurrency, type Feedback, oneLine, type Pause } from '../../feedback/feedback.ts'
import type { SmtpAnswer } from '../answer.ts'
import { type Because, fatal, pauseMs, pauseUnknown, retryJob, slowDown } from './build-feedback.ts'
import { broken, connectionFailure, unreachable } from './connection.ts'
import type { Dialect } from './dialect.ts'

/** One kind of reply and its feedback. The first that matches counts. */
export interface SmtpReply {
  /** The name of the kind, at the start of reasons. */
  readonly name: string
  readonly matches: (answer: SmtpAnswer) => boolean
  readonly asks: (why: Because) => readonly Feedback[]
}

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

const GREYLIST_MS = 5 * MINUTE
/** KumoMTA's shaping rules suspend for this long. */
const YAHOO_MS = 2 * HOUR
/** Daily limits cover a rolling day. The time when one frees is unknown, so one job probes every hour. */
const DAILY_LIMIT_MS = HOUR
const FEW_CONNECTIONS_MS = 15 * MINUTE
const FEWER = 0.5
/** Concurrent connections of one mailbox at Exchange Online. */
const EXCHANGE_CONNECTIONS = 3
const SHORT_PAUSE_MS = 5 * SECOND
const NEXT_RECIPIENTS_MS = SECOND

/** Errors about the message. Before MAIL FROM, the server replies about itself or the account. */
const ABOUT_THE_MESSAGE = new Set(['EENVELOPE', 'EMESSAGE'])
/** RFC 4954 §6: these require a login, whichever command they answer. */
const ABOUT_THE_LOGIN = new Set([530, 534, 535, 538])
const NO_CONNECTION = new Set(['EDNS', 'ETLS'])
const BROKEN_CONNECTION = new Set(['ECONNECTION', 'ETIMEDOUT', 'ESOCKET'])
/** nodemailer's messages about a connection that never got a greeting; the first is the system's. */
const CONNECTING = /^(?:connect E[A-Z]+|Connection timeout$|Greeting never received$)/

/**
 * Words that indicate a rate. "too much mail from", "too many recipients from", "too many AUTH commands from" are
 * Postfix's limits of one client (anvil(8)), which it reports with the codes of a policy: 450 4.7.1.
 */
const TOO_FAST =
  /throttl|too (?:much|many) [a-z ]{1,40} from\b|too many (?:messages|mails|emails|requests)|too (?:fast|quickly)|\brate\b|per (?:second|minute|hour)/i
/** About one email: the accepted recipients have it, and the next email to the others may follow at once. */
const TOO_MANY_RECIPIENTS = /too many recipients/i
const DAILY = /\bdaily\b|per day|24[ -]?hours?|sending (?:quota|limit)|message quota/i

/** At most this many connections, until the destination has had time to forget the excess. */
function connections(limit: number, because: Because): Concurrency {
  return { kind: 'concurrency', scope: 'queue', ...because, limit, ttlMs: FEW_CONNECTIONS_MS }
}

/** Half as many connections as there were: the server had too many, and does not say how many it accepts. */
export function fewerConnections(because: Because): Concurrency {
  return { kind: 'concurrency', scope: 'queue', ...because, factor: FEWER, ttlMs: FEW_CONNECTIONS_MS }
}

/** A pause after which all jobs continue: a rate that was too high for a moment needs no probe. */
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

/** RFC 5321 (replies), RFC 3463 (enhanced codes), and how servers use them. */
const REPLIES: readonly SmtpReply[] = [
  // Yahoo, `[TSS04]`, `[TS01]`: deferred over complaints or reputation.
  {
    name: 'deferral by Yahoo',
    matches: (a) => isTransient(a) && /\[TSS?\d\d\]/.test(a.text),
    asks: (why) => [pauseMs(YAHOO_MS, why)],
  },
  // The server closes the connection, as it may after any command.
  { name: 'closing', matches: (a) => is(a, 421), asks: (why) => [pauseUnknown(why, true), fewerConnections(why)] },
  // RFC 4954: 4.7.0 and 4.7.12 answer a login. They are a limit only if the text mentions a rate.
  { name: 'login', matches: (a) => isAboutLogin(a) && !(isTransient(a) && saysFast(a)), asks: () => [] },
  // Quotas that reset, despite their permanent codes: 5.4.5 is Gmail's, 5.7.232, 5.7.233 and 5.1.90 are Exchange's.
  {
    name: 'quota',
    matches: (a) => isPermanent(a) && (/^5\.(?:4\.5|7\.23[23]|1\.90)$/.test(a.enhanced ?? '') || isDailyRefusal(a)),
    asks: (why) => [pauseMs(DAILY_LIMIT_MS, why)],
  },
  // Exchange: too many connections or sending threads of one account.
  {
    name: 'connections',
    matches: (a) => is(a, 432) || (isTransient(a) && /concurrent|too many connections/i.test(a.text)),
    asks: (why) => [breather(SHORT_PAUSE_MS, why), connections(EXCHANGE_CONNECTIONS, why)],
  },
  // Too many recipients for one message. Postfix and Google send 4.5.3, Exim a bare 452, OpenSMTPD 451.
  {
    name: 'recipients of one mail',
    matches: (a) =>
      isTransient(a) && !saysFast(a) && !saysDaily(a) && (a.enhanced === '4.5.3' || TOO_MANY_RECIPIENTS.test(a.text)),
    asks: (why) => [retryJob(why, { ms: NEXT_RECIPIENTS_MS, name: 'the others after', source: 'smtp' })],
  },
  // First contact: expected, and over after some minutes. Postgrey sends 4.2.0, sendmail's filters send 4.7.1.
  {
    name: 'greylisting',
    matches: (a) => is(a, 450, 451) && (/gr[ae]y-?\s?list/i.test(a.text) || (a.enhanced === '4.7.1' && !saysFast(a))),
    asks: (why) => [retryJob(why, { ms: GREYLIST_MS, name: 'greylisting', source: 'smtp' })],
  },
  // One mailbox is busy, full or flooded (subject 2 of RFC 3463).
  { name: 'mailbox', matches: ({ enhanced }) => /^4\.2\./.test(enhanced ?? ''), asks: (why) => [retryJob(why)] },
  { name: 'quota', matches: (a) => isTransient(a) && saysDaily(a), asks: (why) => [pauseMs(DAILY_LIMIT_MS, why)] },
  {
    name: 'rate',
    matches: (a) => isTransient(a) && saysFast(a),
    asks: (why) => [breather(SHORT_PAUSE_MS, why), slowDown(why)],
  },
  // Out of resources; RFC 5321 uses a bare 452.
  {
    name: 'resources',
    matches: (a) => is(a, 452) && (a.enhanced === undefined || a.enhanced === '4.3.1'),
    asks: (why) => [pauseUnknown(why, true)],
  },
  { name: 'refusal for now', matches: isTransient, asks: (why) => [retryJob(why)] },
  {
    name: 'permanent refusal',
    matches: (a) => ABOUT_THE_MESSAGE.has(a.code) && (a.status === undefined || isPermanent(a)),
    asks: (why) => [fatal(why)],
  },
  { name: 'no connection', matches: isUnconnected, asks: (why) => [unreachable(why)] },
  { name: 'connection', matches: (a) => isBroken(a) && a.unsent === true, asks: (why) => [pauseUnknown(why, true)] },
  { name: 'connection', matches: isBroken, asks: (why) => [broken(why)] },
]

/** Nothing was sent: nodemailer keeps the system's code in addition to its own. */
function isUnconnected({ status, code, cause = '', text }: SmtpAnswer): boolean {
  if (status !== undefined) return false
  return NO_CONNECTION.has(code) || CONNECTING.test(text) || connectionFailure({ code: cause, text }) === 'none'
}

function isBroken({ status, code }: SmtpAnswer): boolean {
  return status === undefined && BROKEN_CONNECTION.has(code)
}

function isAboutLogin({ code, status = 0, enhanced }: SmtpAnswer): boolean {
  return (
    code === 'EAUTH' || ABOUT_THE_LOGIN.has(status) || enhanced === '4.7.12' || (status === 454 && enhanced === '4.7.0')
  )
}

/**
 * A refusal of one email must not stop a queue: "daily digests are spam" is not about a quota, and a full mailbox
 * (5.2.2) or an oversized mail (5.3.4) is not about the sender's quota.
 */
function isDailyRefusal(answer: SmtpAnswer): boolean {
  return saysDaily(answer) && /quota|limit/i.test(answer.text) && !/^5\.[23]\./.test(answer.enhanced ?? '')
}

/**
 * Any SMTP server, through nodemailer: connections, their limits, rates, quotas, greylisting, mailboxes and refusals. A
 * permanently refused login or greeting, and protocol faults, give no feedback: they concern the account or the
 * configuration, so the job fails like any other, and the queue continues.
 */
export const smtpDialect = smtpDialectWith([])

/** As {@link smtpDialect}, with replies that mean more at one provider than in RFC 5321. */
export function smtpDialectWith(own: readonly SmtpReply[]): Dialect<SmtpAnswer> {
  const replies = [...own, ...REPLIES]
  return (answer) => {
    const reply = replies.find(({ matches }) => matches(answer))
    return reply?.asks({ reason: reasonOf(reply, answer), source: 'smtp' }) ?? []
  }
}

/** The reply without its addresses: reasons are stored and shown where a job's data is not. */
function reasonOf({ name }: SmtpReply, { text, code }: SmtpAnswer): string {
  const reply = text === '' ? code : text.slice(0, 300)
  const words = reply.split(/([\s<>"',;:]+)/)
  return oneLine(`SMTP, ${name}: ${words.map((word) => (word.includes('@') ? '…' : word)).join('')}`)
}
