import { domainToASCII } from 'node:url'
import type { Job } from 'bullmq'
import { answerOf, profiles } from 'sluice/egress'
import { effectId } from 'sluice/internal'
import { DestinationRefusedError, InvalidPayloadError } from 'sluice-programs'
import { z } from 'zod'
import { unrecoverable } from '../unrecoverable.ts'
import { type Mail, type MessageOptions, messageIdOf, type OutgoingMessage, readMessage } from './message.ts'
import type { MailTransport } from './transport.ts'

/** The result of a sent mail. */
export interface SentMail {
  readonly messageId: string
  readonly accepted: readonly string[]
  /** Recipients that the server permanently refused while it accepted the email for others. */
  readonly rejected: readonly RefusedRecipient[]
  /** The server's last reply, such as `250 2.0.0 Ok: queued as 4XYZ`; '' if it was lost because a worker died. */
  readonly response: string
}

export interface EmailProcessorOptions extends MessageOptions {
  /** Redis key prefix of the queue: part of the identity behind the Message-ID. */
  readonly prefix: string
  /**
   * Called after a delivery with refused recipients, temporary or permanent, was stored. Default: does nothing.
   */
  readonly onRefused?: ((job: EmailJob, delivery: Delivery) => void) | undefined
}

/** The part of a BullMQ job that sending needs. */
export type EmailJob = Pick<
  Job<Mail, SentMail>,
  'id' | 'queueName' | 'timestamp' | 'data' | 'progress' | 'updateProgress'
>

/** The result of one attempt. */
interface SendOutcome {
  readonly delivery: Delivery
  readonly response: string
  /** Why some are pending, or why no recipient gets the email. */
  readonly error?: unknown
}

/**
 * Builds the processor of email jobs.
 *
 * It throws BullMQ's `UnrecoverableError` for data that cannot be sent (cause `InvalidPayloadError`) and for mail that
 * the server permanently refuses for all of its recipients (cause `DestinationRefusedError`); any other error is
 * rethrown, to be retried by the job's `attempts` and `backoff`. No error holds an address.
 *
 * If the server accepts the email for only some recipients, the job's progress lists them ({@link Delivery}; BullMQ
 * emits it as the event `progress`). Only the temporarily refused ones are retried; the job is done when none
 * are left. SMTP cannot send exactly once: if a connection breaks or a worker dies after the server accepted the email,
 * but before that is stored, the email is delivered again, with the same Message-ID.
 */
export function createEmailProcessor(transport: Pick<MailTransport, 'sendMail'>, options: EmailProcessorOptions) {
  return async (job: EmailJob): Promise<SentMail> => {
    const message = readJob(job, options)
    const identity = { prefix: options.prefix, queueName: job.queueName, jobId: job.id ?? '' }
    const messageId = messageIdOf(effectId({ ...identity, timestamp: job.timestamp }), message)
    const before = readDelivery(job.progress, message)
    const { delivery, response, error } = await send(transport, message, messageId, before)
    const { accepted, rejected, pending } = delivery
    const isNews = accepted.length + rejected.length > before.accepted.length + before.rejected.length
    if (accepted.length === 0 && pending.length === 0) throw unrecoverable(refusal(error))
    if (isNews && pending.length + rejected.length > 0) {
      await job.updateProgress({ ...delivery })
      options.onRefused?.(job, delivery)
    }
    if (pending.length > 0) throw error
    return { messageId, accepted, rejected, response }
  }
}

function readJob(job: EmailJob, options: MessageOptions): OutgoingMessage {
  try {
    return readMessage(job.data, options)
  } catch (error) {
    throw error instanceof InvalidPayloadError ? unrecoverable(error) : error
  }
}

/** Sends the email to the pending recipients, once. Never throws. */
async function send(
  transport: Pick<MailTransport, 'sendMail'>,
  message: OutgoingMessage,
  messageId: string,
  before: Delivery,
): Promise<SendOutcome> {
  const { pending } = before
  // A worker died between storing the last replies and finishing the job.
  if (pending.length === 0) return { delivery: before, response: '' }
  try {
    const sent = await transport.sendMail(toNodemailer(message, messageId, pending))
    const accepted = pending.filter((one) => sent.accepted.includes(one))
    return { ...afterRefusals(before, accepted, sent.rejectedErrors ?? []), response: sent.response }
  } catch (came) {
    const { rejectedErrors } = came as SmtpError
    if (rejectedErrors) return { ...afterRefusals(before, [], rejectedErrors), response: '' }
    const error = withoutAddresses(came)
    const rejected = isFinal(error) ? pending.map((recipient) => ({ recipient, reply: replyOf(error) })) : []
    return { delivery: settle(before, [], rejected), response: '', error }
  }
}

function afterRefusals(before: Delivery, accepted: readonly string[], refusals: readonly SmtpError[]) {
  const masked = refusals.map((came) => ({
    recipient: came.recipient ?? '',
    error: withoutAddresses(came) as SmtpError,
  }))
  const final = masked.filter(({ error }) => isFinal(error))
  const rejected = final.map(({ recipient, error }) => ({ recipient, reply: replyOf(error) }))
  const delivery = settle(before, accepted, rejected)
  if (delivery.pending.length === 0) return { delivery, error: final.at(-1)?.error }
  return {
    delivery,
    error: putOff(
      delivery,
      masked.flatMap(({ error }) => (isFinal(error) ? [] : [error])),
    ),
  }
}

/**
 * Picks one reply for all temporarily refused recipients: preferably one about the whole queue, else the last one about
 * a mailbox.
 */
function putOff({ accepted, rejected, pending }: Delivery, refusals: readonly SmtpError[]): Error {
  const closing = refusals.find(({ responseCode }) => responseCode === 421)
  const error =
    closing ?? refusals.findLast(isAboutQueue) ?? refusals.at(-1) ?? new Error('no reply for some recipients')
  const total = accepted.length + rejected.length + pending.length
  error.message = `${pending.length} of ${total} recipients do not have the mail yet: ${error.message}`
  return error
}

function toNodemailer(message: OutgoingMessage, messageId: string, recipients: readonly string[]) {
  const { from, to, cc, subject, text, html } = message
  return {
    messageId,
    from: { ...from },
    to: to.map((mailbox) => ({ ...mailbox })),
    cc: cc.map((mailbox) => ({ ...mailbox })),
    subject,
    ...(text !== undefined && { text }),
    ...(html !== undefined && { html }),
    // Explicit, so that the email goes to the recipients that were checked, however headers are parsed.
    envelope: { from: from.address, to: [...recipients] },
  }
}

interface SmtpError extends Error {
  code?: string | undefined
  responseCode?: number | undefined
  response?: string | undefined
  permanent?: boolean | undefined
  recipient?: string | undefined
  /** Set if recipients were refused individually. */
  rejectedErrors?: readonly SmtpError[] | undefined
}

/**
 * Only a reply about this message is final. A refused login or greeting has a 5xx code too, but concerns the account or
 * the server, and a 5xx about the sender's quota is temporary: treating these as final would fail a whole queue and
 * lose its mail.
 */
function isFinal(error: unknown): error is SmtpError {
  if (!(error instanceof Error)) return false
  const { code, permanent, responseCode } = error as SmtpError
  if (code !== 'EENVELOPE' && code !== 'EMESSAGE') return false
  return (responseCode === undefined || permanent === true) && !isAboutQueue(error)
}

function isAboutQueue(error: unknown): boolean {
  return profiles.smtp.dialect(answerOf({ threw: error })).some(({ kind }) => kind === 'pause')
}

function replyOf(error: SmtpError): string {
  return error.response ?? error.message
}

function refusal(error: unknown): DestinationRefusedError {
  const { responseCode, code, message } = error as SmtpError
  return new DestinationRefusedError('the SMTP server', String(responseCode ?? code), message, error)
}

/** A recipient that the server permanently refused, and the server's reply, with addresses replaced by `…`. */
interface RefusedRecipient {
  readonly recipient: string
  readonly reply: string
}

/**
 * The state of each recipient of an email. It is stored as the job's progress before a retry, so that the next attempt
 * sends the email only to those in `pending`.
 */
interface Delivery {
  /** The server accepted the email for these. */
  readonly accepted: readonly string[]
  readonly rejected: readonly RefusedRecipient[]
  /** Not yet tried, or temporarily refused. */
  readonly pending: readonly string[]
}

const storedDelivery = z.object({
  accepted: z.array(z.string()),
  rejected: z.array(z.object({ recipient: z.string(), reply: z.string() })),
})

/**
 * @param progress of the job: what an earlier attempt stored; any other value is ignored
 * @returns each recipient of the message once
 */
function readDelivery(progress: unknown, { to, cc }: OutgoingMessage): Delivery {
  const recipients = [...new Set([...to, ...cc].map(({ address }) => asSent(address)))]
  const { data: stored } = storedDelivery.safeParse(progress)
  const accepted = recipients.filter((one) => stored?.accepted.includes(one))
  const rejected = (stored?.rejected ?? []).filter(({ recipient }) => recipients.includes(recipient))
  const settled = [...accepted, ...rejected.map(({ recipient }) => recipient)]
  return { accepted, rejected, pending: recipients.filter((one) => !settled.includes(one)) }
}

/** The delivery after an attempt. Recipients that are neither accepted nor rejected stay pending. */
function settle(before: Delivery, accepted: readonly string[], rejected: readonly RefusedRecipient[]): Delivery {
  const settled = [...accepted, ...rejected.map(({ recipient }) => recipient)]
  return {
    accepted: [...before.accepted, ...accepted],
    rejected: [...before.rejected, ...rejected],
    pending: before.pending.filter((one) => !settled.includes(one)),
  }
}

/** The form in which nodemailer sends an address and reports it afterwards: its domain in ASCII. */
function asSent(address: string): string {
  const at = address.lastIndexOf('@') + 1
  const domain = address.slice(at)
  return `${address.slice(0, at)}${domainToASCII(domain) || domain}`
}

/**
 * Characters that no address accepted by `message.ts` contains. A word between them with an @ in it is an address, or
 * begins with one.
 */
const BETWEEN_ADDRESSES = /([\s\p{Cc}"(),:;<>[\\\]]+)/u

/** The fields of nodemailer's errors that the profiles and the processor read; its other fields repeat the envelope. */
const KEPT = ['code', 'originalCode', 'command', 'responseCode', 'permanent', 'response', 'unsent'] as const

/**
 * Profiles distinguish destinations by the domain of the refused recipient. It is a private field, so that printing the
 * error does not show it.
 */
class MaskedError extends Error {
  readonly #domain: string

  constructor(message: string, recipient: string) {
    super(message)
    this.#domain = recipient.slice(recipient.lastIndexOf('@'))
  }

  get recipient(): string {
    return this.#domain
  }
}

/**
 * A copy of an error with every email address in its texts replaced by `…`: servers repeat the recipient in their
 * replies, and errors are logged and stored where emails must not be. Reply codes and the rest of the text are kept.
 */
function withoutAddresses(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { recipient } = error as { readonly recipient?: unknown }
  const masked = new MaskedError(maskAddresses(error.message), typeof recipient === 'string' ? recipient : '')
  masked.name = error.name
  masked.stack = maskAddresses(error.stack ?? '')
  for (const field of KEPT) {
    const value = (error as Partial<Record<(typeof KEPT)[number], unknown>>)[field]
    if (value !== undefined)
      Object.assign(masked, { [field]: typeof value === 'string' ? maskAddresses(value) : value })
  }
  return masked
}

function maskAddresses(text: string): string {
  const words = text.split(BETWEEN_ADDRESSES)
  return words.map((word) => (word.indexOf('@') > 0 ? '…' : word)).join('')
}
