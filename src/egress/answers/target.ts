import type { CallOutcome } from '../../feedback/source.ts'
import { causesOf } from './causes.ts'
import { urlIn } from './http.ts'
import { attempt, read, readText } from './read.ts'

const MAX_RECIPIENTS = 100
const MAX_DOMAIN = 256

/**
 * The target of a call, found in the value that a processor threw or returned; undefined if unknown. For a URL its
 * origin and path, because the query only distinguishes calls of one endpoint. For an email, its recipients' domain, if
 * they share one.
 */
export function targetOf(outcome: CallOutcome): string | undefined {
  return urlOf(outcome) ?? ('threw' in outcome ? refusedDomain(outcome.threw) : takenDomain(outcome.returned))
}

function urlOf(outcome: CallOutcome): string | undefined {
  const around = 'threw' in outcome ? causesOf(outcome.threw) : [outcome.returned]
  for (const one of around) {
    const url = urlIn(read(one, 'response')) || urlIn(one) || urlIn(read(one, 'config'))
    if (url !== '') return url.split(/[?#]/, 1)[0]
  }
  return undefined
}

/** nodemailer names the refused recipient, or all of them. */
function refusedDomain(thrown: unknown): string | undefined {
  for (const error of causesOf(thrown)) {
    const domain = oneDomain(read(error, 'rejected')) ?? domainOf(readText(error, 'recipient'))
    if (domain !== undefined) return domain
  }
  return undefined
}

/** nodemailer's result for a sent mail. */
function takenDomain(sent: unknown): string | undefined {
  return typeof read(sent, 'response') === 'string' ? oneDomain(read(sent, 'accepted')) : undefined
}

function oneDomain(recipients: unknown): string | undefined {
  const list = attempt(() => (Array.isArray(recipients) ? recipients.slice(0, MAX_RECIPIENTS) : [])) ?? []
  const [domain, ...others] = new Set(list.map(domainOf))
  return others.length === 0 ? domain : undefined
}

/** '@example.org' */
function domainOf(recipient: unknown): string | undefined {
  const address = typeof recipient === 'string' ? recipient : readText(recipient, 'address')
  const at = address.lastIndexOf('@')
  return at < 0 ? undefined : address.slice(at, at + MAX_DOMAIN).toLowerCase()
}
