import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'
import { onTestFinished } from 'vitest'

/** A reply in the place of the good one; a message may begin with an enhanced code. */
export interface Reply {
  readonly code: number
  readonly message: string
}

/** What the server says, and when. */
export interface Script {
  /** Of the n-th login, from 1 on. Without it there is no login. */
  readonly login?: (count: number) => Reply | undefined
  readonly recipient?: (address: string, when: When) => Promise<Reply | undefined>
}

export interface When {
  /** Recipients that came before it. */
  readonly before: number
  /** How often this one has come, now included. */
  readonly times: number
}

/** A recipient that was answered. */
export interface SeenRecipient {
  readonly address: string
  /** ms since 1970 */
  readonly answeredMs: number
  readonly reply: Reply | undefined
}

/** A real SMTP server on loopback, for one test. */
export interface MailServer {
  readonly url: string
  readonly recipients: readonly SeenRecipient[]
  /** The recipient of each mail that was taken. */
  readonly taken: readonly string[]
}

export async function startMailServer({ login, recipient }: Script): Promise<MailServer> {
  const recipients: SeenRecipient[] = []
  const taken: string[] = []
  const times = new Map<string, number>()
  let logins = 0
  let came = 0
  const server = new SMTPServer({
    ...{ disableReverseLookup: true, closeTimeout: 1, authOptional: !login, allowInsecureAuth: true },
    disabledCommands: login ? ['STARTTLS'] : ['STARTTLS', 'AUTH'],
    onAuth: ({ username }, _session, answer) => {
      const reply = login?.(++logins)
      answer(reply && errorOf(reply), { user: username })
    },
    onRcptTo: async ({ address }, _session, answer) => {
      times.set(address, (times.get(address) ?? 0) + 1)
      const reply = await recipient?.(address, { before: came++, times: times.get(address) as number })
      recipients.push({ address, answeredMs: Date.now(), reply })
      answer(reply && errorOf(reply))
    },
    onData: (stream, { envelope }, answer) => {
      stream.on('end', () => {
        taken.push(...envelope.rcptTo.map(({ address }) => address))
        answer()
      })
      stream.resume()
    },
  })
  // Of single connections, which close after 421.
  server.on('error', () => {})
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => new Promise<void>((resolve) => server.close(() => resolve())))
  const { port } = server.server.address() as AddressInfo
  return { url: `smtp://${login ? 'shop:secret@' : ''}127.0.0.1:${port}`, recipients, taken }
}

function errorOf({ code, message }: Reply): Error {
  return Object.assign(new Error(message), { responseCode: code })
}
