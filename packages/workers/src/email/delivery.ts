import { domainToASCII } from 'node:url'
import { z } from 'zod'
import type { OutgoingMessage } from './message.ts'

/** A recipient that the server permanently refused, and the server's reply, with addresses replaced by `…`. */
export interface RefusedRecipient {
  readonly recipient: string
  readonly reply: string
}

/**
 * The state of each recipient of a mail. It is stored as the job's progress before a retry, so that the next attempt
 * sends the mail only to those in `pending`.
 */
export interface Delivery {
  /** The server accepted the mail for these. */
  readonly accepted: readonly string[]
  readonly rejected: readonly RefusedRecipient[]
  /** Not yet tried, or temporarily refused. */
  readonly pending: readonly string[]
}

const storedDelivery = z.object({
  accepted: z.array(z.string()),
  rejected: z.array(z.object({ recipient: z.string(), reply: z.string() })),
})

/**
 * @param progress of the job: what an earlier attempt stored; any other value is ignored
 * @returns each recipient of the message once
 */
export function readDelivery(progress: unknown, { to, cc }: OutgoingMessage): Delivery {
  const recipients = [...new Set([...to, ...cc].map(({ address }) => asSent(address)))]
  const { data: stored } = storedDelivery.safeParse(progress)
  const accepted = recipients.filter((one) => stored?.accepted.includes(one))
  const rejected = (stored?.rejected ?? []).filter(({ recipient }) => recipients.includes(recipient))
  const settled = [...accepted, ...rejected.map(({ recipient }) => recipient)]
  return { accepted, rejected, pending: recipients.filter((one) => !settled.includes(one)) }
}

/** The delivery after an attempt. Recipients that are neither accepted nor rejected stay pending. */
export function settle(before: Delivery, accepted: readonly string[], rejected: readonly RefusedRecipient[]): Delivery {
  const settled = [...accepted, ...rejected.map(({ recipient }) => recipient)]
  return {
    accepted: [...before.accepted, ...accepted],
    rejected: [...before.rejected, ...rejected],
    pending: before.pending.filter((one) => !settled.includes(one)),
  }
}

/** The form in which nodemailer sends an address and reports it afterwards: its domain in ASCII. */
function asSent(address: string): string {
  const at = address.lastIndexOf('@') + 1
  const domain = address.slice(at)
  return `${address.slice(0, at)}${domainToASCII(domain) || domain}`
}
