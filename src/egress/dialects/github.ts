import type { HttpAnswer } from '../answer.ts'
import { bodyList, bodyText } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import type { HttpDialect } from './dialect.ts'
import { feedbackOfStatus } from './http.ts'
import { waitOfQuotas } from './quota-feedback.ts'
import { fatal, pauseFor, pauseMs, peerName } from './said.ts'

/** At least one minute: docs.github.com, rate limits for the REST API. */
const SECONDARY_PAUSE_MS = 60_000
const SECONDARY = /secondary rate limit|abuse detection|secondary-rate-limits/i

/**
 * GitHub's REST and GraphQL APIs. A limit is 403 or 429, in GraphQL also 200; a 403 without signs of a limit is a
 * missing permission. Secondary limits have no counters: they last at least a minute, and continuing may get the client
 * banned.
 */
export const githubDialect: HttpDialect = (answer) => {
  const signals = readHttpSignals(answer)
  const { status } = answer
  const isRefused = status === 403 || status === 429 || isGraphqlLimit(answer)
  if (!isRefused) return feedbackOfStatus(answer, signals)
  if (signals.wait) return [pauseFor(status, signals.wait)]
  const isUsedUp = signals.quotas.some(({ remaining }) => remaining === 0)
  const reset = isUsedUp ? waitOfQuotas(signals) : undefined
  if (reset) return [pauseFor(status, { ...reset, name: `primary limit${resource(answer)} reset` })]
  if (status === 403 && !isUsedUp && !isSecondary(answer))
    return [fatal({ reason: '403 no permission', source: 'status' })]
  return [pauseMs(SECONDARY_PAUSE_MS, { reason: `${status} secondary limit`, source: 'body' })]
}

function isGraphqlLimit({ status, body }: HttpAnswer): boolean {
  return status === 200 && bodyList(body, 'errors').some((error) => /^RATE_LIMITED?$/.test(bodyText(error, 'type')))
}

function isSecondary({ body, text }: HttpAnswer): boolean {
  return [bodyText(body, 'message'), bodyText(body, 'documentation_url'), bodyText(body), text].some((said) =>
    SECONDARY.test(said),
  )
}

function resource(answer: HttpAnswer): string {
  return peerName(field(answer, 'x-ratelimit-resource'))
}
