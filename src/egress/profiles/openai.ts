import type { HttpAnswer } from '../answer.ts'
import { fatal, peerName } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { feedbackOfGates, gate } from '../dialects/gates.ts'
import { bodyNumber, bodyText } from '../signals/body.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { shapelessProfile } from './profile.ts'

/** No payment, no quota: waiting does not help. */
const UNPAID = /^(?:insufficient_quota|billing_[a-z_]{1,40})$/

/** Resets are Go durations, until the gate is full again; Azure sends whole seconds. */
export const OPENAI_GATES = ['requests', 'tokens']
const GATES = OPENAI_GATES.map((name) =>
  gate(name, `x-ratelimit-limit-${name}`, `x-ratelimit-remaining-${name}`, `x-ratelimit-reset-${name}`),
)

/** OpenAI, and services with the same API. Limits: 'requests' and 'tokens'. platform.openai.com, rate limits */
export const openaiDialect: HttpDialect = (answer, quota) => {
  const unpaid = answer.status === 429 && unpaidCode(answer)
  if (unpaid) return [fatal({ reason: `429${peerName(unpaid)}`, source: 'body' })]
  const used = { requests: 1, tokens: bodyNumber(answer.body, 'usage', 'total_tokens') }
  return feedbackOfGates(answer, readHttpSignals(answer, { quotas: GATES }), used, quota)
}

function unpaidCode({ body, code }: HttpAnswer): string | undefined {
  return [bodyText(body, 'error', 'code'), bodyText(body, 'error', 'type'), code].find((said) => UNPAID.test(said))
}

export const openai = shapelessProfile('openai', openaiDialect, OPENAI_GATES)
