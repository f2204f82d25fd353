/**
 * What came back from the other side, as the parsers and rules look at it: made of what a processor threw or returned, by
 * the files in `answers/`.
 */
export type Answer = HttpAnswer | SmtpAnswer | SqlAnswer | OtherAnswer

interface Came {
  /** Whether the call failed: thrown, or an answer of status 400 and more. */
  readonly failed: boolean
  /** The error's own text, or ''. */
  readonly text: string
  /** The error's `name`, or ''. */
  readonly name: string
  /** The error's `code` (ECONNRESET, rate_limit, lock_timeout …), or ''. */
  readonly code: string
}

export interface HttpAnswer extends Came {
  readonly protocol: 'http'
  readonly status: number
  /** Names in lower case; several lines of one field joined by ', '. */
  readonly headers: Readonly<Record<string, string>>
  /** JSON where it is JSON, else text, else undefined. Bodies of streams are left unread. */
  readonly body?: unknown
  /** When it came, ms since 1970 on this machine's clock. */
  readonly receivedAtMs: number
  /** The URL that answered, where it is known: scopes are made of it. */
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
  /** The system's code behind nodemailer's own: 'ECONNREFUSED'. */
  readonly cause?: string
  /** The end of the message was not sent: the server can not have taken it. */
  readonly unsent?: true
}

export interface SqlAnswer extends Came {
  readonly protocol: 'sql'
  readonly sqlstate?: string
  /** How long the call took, ms, where it is known: rising latency is feedback too. */
  readonly latencyMs?: number
}

/** An error of none of these protocols, such as a broken connection. */
export interface OtherAnswer extends Came {
  readonly protocol: 'other'
}
