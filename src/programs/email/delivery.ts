import { domainToASCII } from 'node:url'
import { z } from 'zod'
import type { OutgoingMessage } from './message.ts'

/** A recipient that the server refused for good, and its reply, in which addresses are replaced by `…`. */
export interface RefusedRecipient {
  readonly recipient: string
  readonly reply: string
}

/**
 * What has become of each recipient of a mail. It is stored as the job's progress before the mail is tried again, so that
 * whoever runs the job next sends it to those in `pending` alone.
 */
export interface Delivery {
  /** The server took the mail for these. */
  readonly accepted: readonly string[]
  readonly rejected: readonly RefusedRecipient[]
  /** Not yet sent to, or refused for now. */
  readonly pending: readonly string[]
}

const storedDelivery = z.object({
  accepted: z.array(z.string()),
  rejected: z.array(z.object({ recipient: z.string(), reply: z.string() })),
})

/**
 * @param progress that of the job: what an earlier attempt stored, or anything else, which counts as nothing
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

/** The delivery after an attempt. What is neither accepted nor rejected stays pending. */
export function settle(before: Delivery, accepted: readonly string[], rejected: readonly RefusedRecipient[]): Delivery {
  const settled = [...accepted, ...rejected.map(({ recipient }) => recipient)]
  return {
    accepted: [...before.accepted, ...accepted],
    rejected: [...before.rejected, ...rejected],
    pending: before.pending.filter((one) => !settled.includes(one)),
  }
}

/** As nodemailer writes an address to the server and names it afterwards: its domain in ASCII. */
function asSent(address: string): string {
  const at = address.lastIndexOf('@') + 1
  const domain = address.slice(at)
  return `${address.slice(0, at)}${domainToASCII(domain) || domain}`
}
