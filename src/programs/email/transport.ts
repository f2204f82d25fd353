import { createTransport } from 'nodemailer'

export interface MailTransportOptions {
  /** `smtp://` or `smtps://` URL, credentials included. */
  readonly url: string
  /** Milliseconds without an answer after which a connection is given up. */
  readonly timeoutMs: number
}

/** An SMTP transport that leaves pacing and retrying to the queue. */
export type MailTransport = ReturnType<typeof createMailTransport>

/**
 * Builds the transport: one connection for each mail, as many at once as jobs run. Messages can name no file and no URL.
 *
 * No pool: where the server ends a connection that has sent before, nodemailer's pool keeps the reply to itself (a 421
 * before the data above all) and sends the mail once more, or fails it for a reason of its own. Such a send is one that
 * the meter does not know of, and such a failure says nothing of the 421 that has to pause the whole fleet.
 */
export function createMailTransport({ url, timeoutMs }: MailTransportOptions) {
  return createTransport({
    url,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    dnsTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
}
