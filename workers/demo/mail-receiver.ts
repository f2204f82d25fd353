import { type SmtpSink, startSmtpSink } from '../services/smtp.ts'
import type { Arrival } from './report.ts'

/** The SMTP server of the demonstration and what it received. */
export interface MailReceiver {
  readonly url: string
  /** Every attempt in the order of arrival, including refused ones. */
  readonly arrivals: readonly Arrival[]
  /** How many mails were answered 451 on purpose. */
  sentAway(): number
  stop(): Promise<void>
}

/** Which new mails are refused temporarily on their first attempt: the 5th, the 45th, the 85th … */
const every = 40
const offset = 5

/** The worker's Message-ID is the effect's id at the sender's domain. */
const effectOf = (messageId: string): string => messageId.replace(/^<|@.*$/g, '')

/**
 * Starts the server. Some of the first half of `expected` mails get one transient 451 reply each, as from a busy mail
 * server, so that there are real retries; the second half gets none, so that retries do not delay the end of the run.
 */
export async function startMailReceiver(expected: number): Promise<MailReceiver> {
  const arrivals: Arrival[] = []
  const seen = new Set<string>()
  let sentAway = 0
  const sink: SmtpSink = await startSmtpSink({
    respond: ({ messageId, receivedAtMs }) => {
      const effectId = effectOf(messageId)
      const isNew = !seen.has(effectId)
      seen.add(effectId)
      const taken = !(isNew && seen.size <= expected / 2 && seen.size % every === offset)
      arrivals.push({ effectId, atUs: Math.round(receivedAtMs * 1000), taken })
      if (taken) return undefined
      sentAway++
      return { code: 451, message: '4.3.2 busy, please try again later' }
    },
  })
  return { url: sink.url, arrivals, sentAway: () => sentAway, stop: () => sink.stop() }
}
