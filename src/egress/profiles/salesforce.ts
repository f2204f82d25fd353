import type { HttpAnswer } from '../answer.ts'
import { pauseFor, pauseUnknown } from '../dialects/build-feedback.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { ok } from '../dialects/quota-feedback.ts'
import { bodyList, bodyText } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { shapelessProfile } from './profile.ts'

const REFUSED = 'REQUEST_LIMIT_EXCEEDED'
const USAGE = /(?:^|[\s,;])api-usage=(\d{1,15})\/(\d{1,15})(?:$|[\s,;])/

/**
 * Salesforce: `Sforce-Limit-Info: api-usage=18/5000`, calls of the last 24 hours. A refused call is 403, with the reason
 * in the body and no time. developer.salesforce.com, REST API headers and status codes
 */
export const salesforce = shapelessProfile('salesforce', (answer) => {
  const { status } = answer
  const signals = readHttpSignals(answer)
  if (status === 403 && isLimit(answer)) {
    return [
      signals.wait
        ? pauseFor(status, signals.wait)
        : pauseUnknown({ reason: `${status} ${REFUSED}`, source: 'body' }, true),
    ]
  }
  const remaining = remainingCalls(answer)
  const isGood = status >= 200 && status < 400
  return isGood && remaining !== undefined
    ? [ok(status, { remaining }, { source: 'x-ratelimit' })]
    : feedbackOfStatus(answer, signals)
})

function isLimit({ body, code }: HttpAnswer): boolean {
  return code === REFUSED || bodyList(body).some((error) => bodyText(error, 'errorCode') === REFUSED)
}

function remainingCalls(answer: HttpAnswer): number | undefined {
  const [, used, all] = USAGE.exec(field(answer, 'sforce-limit-info') ?? '') ?? []
  return used === undefined ? undefined : Math.max(Number(all) - Number(used), 0)
}
