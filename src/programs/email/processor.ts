import type { Job } from 'bullmq'
import { effectId } from '../../effect-id.ts'
import { DestinationRefusedError, InvalidPayloadError, unrecoverable } from '../errors.ts'
import { type Mail, type MessageOptions, messageIdOf, type OutgoingMessage, readMessage } from './message.ts'
import type { MailTransport } from './transport.ts'
import { withoutAddresses } from './without-addresses.ts'

/** What is kept of a sent mail. */
export interface SentMail {
  readonly messageId: string
  readonly accepted: readonly string[]
  /** Recipients the server refused while it took the mail for others; never retried, for the others have it. */
  readonly rejected: readonly string[]
  /** The server's last reply, such as `250 2.0.0 Ok: queued as 4XYZ`. */
  readonly response: string
}

export interface EmailProcessorOptions extends MessageOptions {
  /** Redis key prefix of the queue: part of the identity behind the Message-ID. */
  readonly prefix: string
}

/** The part of a BullMQ job that sending needs. */
export type EmailJob = Pick<Job<Mail, SentMail>, 'id' | 'queueName' | 'timestamp' | 'data'>

/**
 * Builds the processor of email jobs.
 *
 * It throws BullMQ's `UnrecoverableError` for data that cannot be sent (cause `InvalidPayloadError`) and for mail that
 * the server refuses for good (cause `DestinationRefusedError`); anything else is thrown as it came, to be retried as
 * the job's `attempts` and `backoff` say. No error holds an address. SMTP cannot send exactly once: a connection that
 * breaks after the server took the mail leads to a second delivery, with the same Message-ID.
 */
export function createEmailProcessor(transport: Pick<MailTransport, 'sendMail'>, options: EmailProcessorOptions) {
  return async (job: EmailJob): Promise<SentMail> => {
    const message = readJob(job, options)
    const id = effectId({
      prefix: options.prefix,
      queueName: job.queueName,
      jobId: job.id ?? '',
      timestamp: job.timestamp,
    })
    const messageId = messageIdOf(id, message)
    try {
      const { accepted, rejected, response } = await transport.sendMail(toNodemailer(message, messageId))
      return { messageId, accepted: accepted.map(addressOf), rejected: rejected.map(addressOf), response }
    } catch (came) {
      const error = withoutAddresses(came)
      throw isPermanent(error) ? unrecoverable(refusal(error)) : error
    }
  }
}

function readJob(job: EmailJob, options: MessageOptions): OutgoingMessage {
  try {
    return readMessage(job.data, options)
  } catch (error) {
    throw error instanceof InvalidPayloadError ? unrecoverable(error) : error
  }
}

function toNodemailer(message: OutgoingMessage, messageId: string) {
  const { from, to, cc, subject, text, html } = message
  return {
    messageId,
    from: { ...from },
    to: to.map((mailbox) => ({ ...mailbox })),
    cc: cc.map((mailbox) => ({ ...mailbox })),
    subject,
    ...(text !== undefined && { text }),
    ...(html !== undefined && { html }),
    // The recipients that were checked are the recipients, whatever a header would be read as.
    envelope: { from: from.address, to: [...to, ...cc].map(({ address }) => address) },
  }
}

interface SmtpError extends Error {
  code?: string
  responseCode?: number
  permanent?: boolean
}

/**
 * Only an answer about this message is final. A refused login or greeting carries a 5xx too, but it speaks of the
 * account or the server: failing a whole queue for good over it would lose the mail.
 */
function isPermanent(error: unknown): error is SmtpError {
  if (!(error instanceof Error)) return false
  const { code, permanent, responseCode } = error as SmtpError
  if (code !== 'EENVELOPE' && code !== 'EMESSAGE') return false
  return responseCode === undefined || permanent === true
}

function refusal(error: SmtpError): DestinationRefusedError {
  return new DestinationRefusedError('the SMTP server', String(error.responseCode ?? error.code), error.message, error)
}

function addressOf(recipient: string | { address: string }): string {
  return typeof recipient === 'string' ? recipient : recipient.address
}
