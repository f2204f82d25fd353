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
 * A copy of an error with every mail address in its texts replaced by `…`: servers repeat the recipient in their
 * replies, and errors are logged and stored where mails must not be. Reply codes and the rest of the text are kept.
 */
export function withoutAddresses(error: unknown): unknown {
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
