import type { HttpAnswer } from '../answer.ts'
import { retryJob, slowDown } from '../dialects/build-feedback.ts'
import { feedbackOfGates, gate } from '../dialects/gates.ts'
import { bodyNumber } from '../signals/body.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { shapelessProfile } from './profile.ts'

/** Resets are dates of RFC 3339. */
const GATE_NAMES = ['requests', 'tokens', 'input-tokens', 'output-tokens']
const GATES = GATE_NAMES.map((name) => {
  const fields = `anthropic-ratelimit-${name}`
  return gate(name, `${fields}-limit`, `${fields}-remaining`, `${fields}-reset`)
})

/**
 * Anthropic. Limits: 'requests', 'tokens', 'input-tokens' and 'output-tokens'. 529 is overload of the whole service,
 * not a quota: it lowers the rate, and a time given with it is for that job. docs.anthropic.com, rate limits and errors
 */
export const anthropic = shapelessProfile(
  'anthropic',
  (answer, quota) => {
    const signals = readHttpSignals(answer, { quotas: GATES })
    if (answer.status !== 529) return feedbackOfGates(answer, signals, usedBy(answer), quota)
    const because = { reason: '529 overloaded', source: 'status' } as const
    return [slowDown(because), retryJob(because, signals.wait)]
  },
  GATE_NAMES,
)

function usedBy({ body }: HttpAnswer) {
  const input = bodyNumber(body, 'usage', 'input_tokens')
  const output = bodyNumber(body, 'usage', 'output_tokens')
  const tokens = input !== undefined && output !== undefined ? input + output : undefined
  return { requests: 1, tokens, 'input-tokens': input, 'output-tokens': output }
}
