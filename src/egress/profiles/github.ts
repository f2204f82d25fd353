import { safeShape } from '../../limits/safe-shape.ts'
import type { HttpAnswer } from '../answer.ts'
import { fatal, pauseFor, pauseMs, peerName } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { waitOfQuotas } from '../dialects/quota-feedback.ts'
import { bodyList, bodyText } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

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

/**
 * GitHub's REST API with a user's token: 5000 requests per hour, and 100 at once. With a burst of 10, writes (5 points
 * each) also stay below 900 points per minute. Requests that create content have lower limits, 80 per minute and 500
 * per hour: give their queue `{ rate: '500/h' }`.
 */
export const github = createProfile({
  name: 'github',
  dialect: over('http', githubDialect),
  rules: [],
  shape: {
    ...safeShape({ quota: 5000, windowMs: 3_600_000, jitterMs: STARTING_JITTER_MS, burst: 10 }),
    concurrency: 100,
  },
  read: { on: '2026-11-22', at: 'https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api' },
})
