/**
 * An answer of the downstream in the form that parsers and rules read, made by the files in `answers/` from the value
 * that a processor threw or returned.
 */
export type Answer = HttpAnswer | SmtpAnswer | SqlAnswer | OtherAnswer

interface Came {
  /** Whether the call failed: it threw, or the answer has a status of 400 or more. */
  readonly failed: boolean
  /** The error's message, or ''. */
  readonly text: string
  /** The error's `name`, or ''. */
  readonly name: string
  /** The error's `code` (ECONNRESET, rate_limit, lock_timeout …), or ''. */
  readonly code: string
}

export interface HttpAnswer extends Came {
  readonly protocol: 'http'
  readonly status: number
  /** Names in lower case; repeated fields joined by ', '. */
  readonly headers: Readonly<Record<string, string>>
  /** JSON if it is JSON, else text, else undefined. Streams are left unread. */
  readonly body?: unknown
  /** When it arrived, ms since 1970 on this machine's clock. */
  readonly receivedAtMs: number
  /** The URL that answered, if known: scopes derive from it. */
  readonly url?: string
  readonly method?: string
}

export interface SmtpAnswer extends Came {
  readonly protocol: 'smtp'
  /** Reply code, such as 421. */
  readonly status?: number
  /** Enhanced code of RFC 3463, such as '4.7.0'. */
  readonly enhanced?: string
  /** The command that was answered: 'CONN', 'MAIL FROM', 'RCPT TO', 'DATA'. */
  readonly command?: string
  /** The system's code behind nodemailer's: 'ECONNREFUSED'. */
  readonly cause?: string
  /** The end of the message was not sent, so the server cannot have accepted it. */
  readonly unsent?: true
}

export interface SqlAnswer extends Came {
  readonly protocol: 'sql'
  readonly sqlstate?: string
  /** How long the call took, ms, if known: rising latency is feedback too. */
  readonly latencyMs?: number
}

/** An error of none of these protocols, such as a broken connection. */
export interface OtherAnswer extends Came {
  readonly protocol: 'other'
}
