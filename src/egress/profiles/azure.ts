import type { HttpAnswer } from '../answer.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { ok } from '../dialects/quota-feedback.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { OPENAI_GATES, openaiDialect } from './openai.ts'
import { shapelessProfile } from './profile.ts'

const REMAINING = 'x-ms-ratelimit-remaining-'
const MAX_VALUE = 2000
/** '11999', or 'Microsoft.Compute/HighCostGet3Min;159' of the resource providers. */
const COUNT = /^(?:[\w./-]{1,100};)?(\d{1,15})$/

/**
 * Azure. Its OpenAI service answers as OpenAI does, with seconds for durations and -1 and 0 for unknown values.
 * Resource Manager reports the remaining units of several quotas in `x-ms-ratelimit-remaining-*`; the lowest counts.
 * learn.microsoft.com, throttling limits
 */
export const azure = shapelessProfile(
  'azure',
  (answer, quota) => {
    const remaining = leastRemaining(answer)
    const isGood = answer.status >= 200 && answer.status < 400
    if (isGood && remaining !== undefined) return [ok(answer.status, { remaining }, { source: 'x-ratelimit' })]
    // Only its OpenAI service names quotas.
    const speaksOpenai =
      quota || Object.keys(answer.headers).some((name) => /^x-ratelimit-\w+-(?:requests|tokens)$/.test(name))
    return speaksOpenai ? openaiDialect(answer, quota) : feedbackOfStatus(answer, readHttpSignals(answer))
  },
  OPENAI_GATES,
)

function leastRemaining({ headers }: HttpAnswer): number | undefined {
  const counts = Object.entries(headers)
    .filter(([name, value]) => name.startsWith(REMAINING) && value.length <= MAX_VALUE)
    .flatMap(([, value]) => value.split(','))
    .flatMap((part) => COUNT.exec(part.trim())?.[1] ?? [])
  return counts.length > 0 ? Math.min(...counts.map(Number)) : undefined
}
