import type { HttpAnswer } from '../answer.ts'
import { bodyText } from '../signals/body.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import type { HttpDialect } from './dialect.ts'
import { feedbackOfStatus } from './http.ts'
import { pauseFor, pauseUnknown, peerName } from './said.ts'

const METHOD = /\/api\/([a-z]{1,40}(?:\.[a-zA-Z]{1,40}){1,3})/

/**
 * Slack's Web API. Limits hold per method, workspace and app, for `chat.postMessage` also per channel; an answer names
 * none of these, so the queue pauses, and the reason names the method. docs.slack.dev, rate limits
 */
export const slackDialect: HttpDialect = (answer) => {
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
