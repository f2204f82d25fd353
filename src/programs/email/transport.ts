import { createTransport } from 'nodemailer'

export interface MailTransportOptions {
  /** `smtp://` or `smtps://` URL, credentials included. */
  readonly url: string
  /** Connections at most: one for each job that can run at once. */
  readonly maxConnections: number
  /** Milliseconds without an answer after which a connection is given up. */
  readonly timeoutMs: number
}

/** A pooled SMTP transport that leaves pacing and retrying to the queue. */
export type MailTransport = ReturnType<typeof createMailTransport>

/**
 * Builds the transport. Its own rate limit and its requeueing stay off: both would send at times, and as often, as the
 * meter does not know of. Messages can name no file and no URL.
 */
export function createMailTransport({ url, maxConnections, timeoutMs }: MailTransportOptions) {
  return createTransport({
    pool: true,
    url,
    maxConnections,
    maxRequeues: 0,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    dnsTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
}
