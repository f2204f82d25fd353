import { slowDown } from '../dialects/build-feedback.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { shapelessProfile } from './profile.ts'

/**
 * Atlassian's cloud APIs: resets are dates of ISO 8601; `X-RateLimit-NearLimit` means that less than a fifth is left,
 * which lowers the rate if the answer gives no count. developer.atlassian.com, rate limiting
 */
export const atlassian = shapelessProfile('atlassian', (answer) => {
  const found = feedbackOfStatus(answer, readHttpSignals(answer))
  const isNear = field(answer, 'x-ratelimit-nearlimit')?.toLowerCase() === 'true'
  const isBlind = found[0]?.kind === 'ok' && found[0].remaining === undefined
  if (!isNear || !isBlind) return found
  return [...found, slowDown({ reason: `${answer.status} X-RateLimit-NearLimit`, source: 'x-ratelimit' })]
})
