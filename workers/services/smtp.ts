import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import PostalMime from 'postal-mime'
import { SMTPServer, type SMTPServerDataStream, type SMTPServerSession } from 'smtp-server'

const HOST = '127.0.0.1'

/** A mail as the server saw it, whatever it then answered. */
export interface ReceivedMail {
  /** When the end of its data arrived: milliseconds since 1970 with fractions, on this process's monotonic clock. */
  receivedAtMs: number
  /** As in the header, with its angle brackets; empty if there is none. */
  messageId: string
  /** The envelope's sender, empty for a bounce. */
  from: string
  /** The envelope's recipients. */
  to: string[]
  subject: string
  /** The header `X-Job-Id`, if there is one. */
  jobId?: string
  /** Bytes of the message, headers included. */
  size: number
}

/** The reply to a mail's data instead of 250. A message may begin with an enhanced status code: `4.3.2 busy`. */
export interface ScriptedReply {
  code: number
  message: string
}

/** How the sink listens and answers. */
export interface SmtpSinkOptions {
  /** Default: a free port. */
  port?: number
  /** Called once for each mail; what it returns is the reply, `undefined` means 250. After 421 the connection closes. */
  respond?: (mail: ReceivedMail) => ScriptedReply | undefined
  /** Called for each mail that was answered with 250. */
  onMail?: (mail: ReceivedMail) => void
}

/** A running SMTP server that keeps what it accepts in memory. */
export interface SmtpSink {
  readonly url: string
  readonly port: number
  /** The mails that were answered with 250, in the order of the answers. */
  readonly mails: readonly ReceivedMail[]
  /** Ends open connections and stops listening. May be called twice. */
  stop(): Promise<void>
}

/** Starts a real SMTP server on 127.0.0.1, without TLS or login, that accepts every mail unless `respond` says otherwise. */
export async function startSmtpSink(options: SmtpSinkOptions = {}): Promise<SmtpSink> {
  const mails: ReceivedMail[] = []
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    // Pooled connections may be idle when the sink stops: it must not wait for them.
    closeTimeout: 1,
    onData: (stream, session, reply) => {
      receive(stream, session).then(
        (mail) => {
          const refusal = options.respond?.(mail)
          if (refusal) {
            reply(smtpError(refusal))
            return
          }
          mails.push(mail)
          options.onMail?.(mail)
          reply()
        },
        (error: Error) => reply(smtpError({ code: 451, message: `4.3.0 ${error.message}` })),
      )
    },
  })
  // Errors of single connections, such as a client that was killed.
  server.on('error', () => {})
  await listen(server, options.port ?? 0)
  const { port } = server.server.address() as AddressInfo
  let stopping: Promise<void> | undefined
  const stop = () => {
    stopping ??= new Promise<void>((resolve) => server.close(() => resolve()))
    return stopping
  }
  return { url: `smtp://${HOST}:${port}`, port, mails, stop }
}

async function listen(server: SMTPServer, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.server.once('error', reject)
    server.listen(port, HOST, () => {
      server.server.off('error', reject)
      resolve()
    })
  })
}

async function receive(stream: SMTPServerDataStream, session: SMTPServerSession): Promise<ReceivedMail> {
  const chunks: Buffer[] = []
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(stream, 'end')
  const receivedAtMs = performance.timeOrigin + performance.now()
  const raw = Buffer.concat(chunks)
  const parsed = await PostalMime.parse(raw)
  const jobId = parsed.headers.find(({ key }) => key === 'x-job-id')?.value
  const { mailFrom, rcptTo } = session.envelope
  return {
    receivedAtMs,
    messageId: parsed.messageId ?? '',
    from: mailFrom === false ? '' : mailFrom.address,
    to: rcptTo.map(({ address }) => address),
    subject: parsed.subject ?? '',
    ...(jobId !== undefined && { jobId }),
    size: raw.length,
  }
}

function smtpError({ code, message }: ScriptedReply): Error {
  return Object.assign(new Error(message), { responseCode: code })
}
