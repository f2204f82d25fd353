import type { HttpAnswer } from '../answer.ts'
import type { Scope } from '../feedback.ts'
import { bodyAt, bodyNumber } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { clampReset } from '../signals/reset.ts'
import type { Wait } from '../signals/wait.ts'
import type { HttpDialect } from './dialect.ts'
import { feedbackOfStatus } from './http.ts'
import { waitOfQuotas } from './quota-feedback.ts'
import { pauseFor, pauseUnknown, peerName } from './said.ts'

/** Limits hold per channel, guild or webhook: docs.discord.com, rate limits. A webhook is known by its id and token. */
const RESOURCE = /\/(channels|guilds)\/\d{1,20}|\/webhooks\/\d{1,20}(?:\/[\w-]{1,100})?/

/**
 * Discord. A bucket's id comes with the answers, so buckets are groups, named `<bucket>:<top-level resource>`; a global
 * limit, or a refusal without a bucket (Cloudflare's, which bans), is the whole queue's.
 * 10,000 answers of 401, 403 and 429 in 10 minutes lead to a ban, those of scope `shared` not counted: a rule has to count.
 */
export const discordDialect: HttpDialect = (answer) => {
  const signals = readHttpSignals(answer)
  const scope = scopeOf(answer)
  if (answer.status !== 429) {
    return feedbackOfStatus(answer, signals).map((said) => (said.kind === 'ok' ? { ...said, scope } : said))
  }
  const limit = peerName(field(answer, 'x-ratelimit-scope'))
  const wait = bodyWait(answer) ?? signals.wait ?? waitOfQuotas(signals)
  if (!wait) return [pauseUnknown({ reason: `429${limit}`, source: 'status', scope })]
  return [pauseFor(429, { ...wait, name: `${limit} ${wait.name}`.trim() }, scope)]
}

function bodyWait({ body }: HttpAnswer): Wait | undefined {
  const seconds = bodyNumber(body, 'retry_after')
  return seconds === undefined ? undefined : { ms: clampReset(seconds * 1000), name: 'retry_after', source: 'body' }
}

function scopeOf(answer: HttpAnswer): Scope {
  const bucket = field(answer, 'x-ratelimit-bucket')
  const isGlobal = field(answer, 'x-ratelimit-global') === 'true' || bodyAt(answer.body, 'global') === true
  if (isGlobal || bucket === undefined) return 'queue'
  const resource = RESOURCE.exec(answer.url ?? '')?.[0].slice(1)
  return { group: resource ? `${bucket}:${resource}` : bucket }
}
