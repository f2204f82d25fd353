import { safeShape } from '../../limits/safe-shape.ts'
import type { HttpAnswer } from '../answer.ts'
import { pauseFor, pauseUnknown, peerName } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { bodyText } from '../signals/body.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

const METHOD = /\/api\/([a-z]{1,40}(?:\.[a-zA-Z]{1,40}){1,3})/

/**
 * Slack's Web API. Limits hold per method, workspace and app, for `chat.postMessage` also per channel; an answer names
 * none of these, so the queue pauses, and the reason names the method. docs.slack.dev, rate limits
 */
const slackDialect: HttpDialect = (answer) => {
  const signals = readHttpSignals(answer)
  const isRefused = answer.status === 429 || /^rate_?limited$/.test(bodyText(answer.body, 'error'))
  if (!isRefused) return feedbackOfStatus(answer, signals)
  const { wait } = signals
  const method = methodOf(answer)
  if (wait) return [pauseFor(answer.status, { ...wait, name: `${method} ${wait.name}`.trim() })]
  return [pauseUnknown({ reason: `${answer.status}${method} ratelimited`, source: 'status' }, true)]
}

function methodOf({ url }: HttpAnswer): string {
  return peerName(METHOD.exec(url ?? '')?.[1])
}

/**
 * Slack's Web API. The shape is that of posting to one channel, a message per second. Other methods have 1, 20, 50 or
 * 100 requests per minute by their tier, each separately, per workspace and app.
 */
export const slack = createProfile({
  name: 'slack',
  dialect: over('http', slackDialect),
  rules: [],
  shape: safeShape({ quota: 1, windowMs: 1000, jitterMs: STARTING_JITTER_MS }),
  read: { on: '2026-11-22', at: 'https://docs.slack.dev/apis/web-api/rate-limits' },
})
