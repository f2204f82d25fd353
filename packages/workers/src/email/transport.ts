import { Readable } from 'node:stream'
import { createTransport, type SendMailOptions } from 'nodemailer'

export interface MailTransportOptions {
  /** `smtp://` or `smtps://` URL, credentials included. */
  readonly url: string
  /** Milliseconds without a reply after which a connection is closed. */
  readonly timeoutMs: number
}

/** An SMTP transport that leaves pacing and retries to the queue. */
export type MailTransport = ReturnType<typeof createMailTransport>

/** nodemailer keeps fields that it does not know. */
interface WatchedMail extends SendMailOptions {
  readonly onWholeMessage?: () => void
}

/**
 * Builds the transport: one connection for each email, so as many connections as running jobs. Messages cannot refer to
 * files or URLs.
 *
 * An error of `sendMail` has `unsent: true` if the end of the message was not sent: the server cannot have accepted
 * it, however the connection ended.
 *
 * No pool: if the server ends a connection that was already used, nodemailer's pool hides the reply (above all a 421
 * before the data) and sends the email once more, or fails it with an error of its own. The meter does not count such a
 * send, and such an error hides the 421 that must pause the whole fleet.
 */
export function createMailTransport({ url, timeoutMs }: MailTransportOptions) {
  const transport = createTransport({
    url,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    dnsTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  // Called before an email is sent, with the tree that builds its message.
  transport.use('stream', ({ data, message }, done) => {
    message.processFunc((input) => Readable.from(whole(input, (data as WatchedMail).onWholeMessage)))
    done()
  })
  return {
    async sendMail(mail: SendMailOptions) {
      let unsent = true
      const onWholeMessage = () => {
        unsent = false
      }
      try {
        return await transport.sendMail({ ...mail, onWholeMessage } as WatchedMail)
      } catch (error) {
        throw Object.assign(error as Error, { unsent })
      }
    },
    verify: () => transport.verify(),
    close: () => transport.close(),
  }
}

/**
 * The stream is read only once the server asks for the message (354); `onEnd` reports that all of it has been passed
 * on.
 */
async function* whole(message: Readable, onEnd: (() => void) | undefined): AsyncGenerator<Buffer> {
  yield* message
  onEnd?.()
}
