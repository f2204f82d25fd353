import { Readable } from 'node:stream'
import { createTransport, type SendMailOptions } from 'nodemailer'

export interface MailTransportOptions {
  /** `smtp://` or `smtps://` URL, credentials included. */
  readonly url: string
  /** Milliseconds without an answer after which a connection is given up. */
  readonly timeoutMs: number
}

/** An SMTP transport that leaves pacing and retrying to the queue. */
export type MailTransport = ReturnType<typeof createMailTransport>

/** nodemailer keeps fields that it does not know. */
interface WatchedMail extends SendMailOptions {
  readonly onWholeMessage?: () => void
}

/**
 * Builds the transport: one connection for each mail, as many at once as jobs run. Messages can name no file and no URL.
 *
 * An error of `sendMail` says `unsent: true` where the end of the message was not sent: the server can not have taken it,
 * however the connection ended.
 *
 * No pool: where the server ends a connection that has sent before, nodemailer's pool keeps the reply to itself (a 421
 * before the data above all) and sends the mail once more, or fails it for a reason of its own. Such a send is one that
 * the meter does not know of, and such a failure says nothing of the 421 that has to pause the whole fleet.
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
  // Called before a mail is sent, with the tree that makes its message.
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

/** Read only once the server asks for the message (354), and then told that all of it is on its way. */
async function* whole(message: Readable, onEnd: (() => void) | undefined): AsyncGenerator<Buffer> {
  yield* message
  onEnd?.()
}
