import type { Ok } from '../../feedback/feedback.ts'
import { safeShape } from '../../limits/safe-shape.ts'
import type { HttpAnswer } from '../answer.ts'
import { pauseFor, pauseUnknown, peerName } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { waitOfQuotas } from '../dialects/quota-feedback.ts'
import { bodyAt, bodyNumber } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { clampReset } from '../signals/reset.ts'
import type { Wait } from '../signals/wait.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * Discord. The limit of one bucket (of a channel, a guild, a webhook) also holds the whole queue: queues have no groups
 * of jobs, and each further refusal counts towards a ban. The remaining units of a bucket are not used for pacing,
 * because other buckets may have more. 10,000 answers of 401, 403 and 429 in 10 minutes lead to a ban, not counting
 * those of scope `shared`: counting them takes a rule.
 */
const discordDialect: HttpDialect = (answer) => {
  const signals = readHttpSignals(answer)
  if (answer.status !== 429) {
    return feedbackOfStatus(answer, signals).map((said) =>
      said.kind === 'ok' && isOfBucket(answer) ? ofBucket(said) : said,
    )
  }
  const limit = peerName(field(answer, 'x-ratelimit-scope'))
  const wait = bodyWait(answer) ?? signals.wait ?? waitOfQuotas(signals)
  if (!wait) return [pauseUnknown({ reason: `429${limit}`, source: 'status' })]
  return [pauseFor(429, { ...wait, name: `${limit} ${wait.name}`.trim() })]
}

function bodyWait({ body }: HttpAnswer): Wait | undefined {
  const seconds = bodyNumber(body, 'retry_after')
  return seconds === undefined ? undefined : { ms: clampReset(seconds * 1000), name: 'retry_after', source: 'body' }
}

/** Keeps only the fact that nothing is left. */
function ofBucket({ remaining, resetMs, policyRate: _, ...said }: Ok): Ok {
  return remaining === 0 && resetMs !== undefined ? { ...said, remaining, resetMs } : said
}

/** Otherwise the limit is a global one, or Cloudflare's, which bans. */
function isOfBucket(answer: HttpAnswer): boolean {
  const isGlobal = field(answer, 'x-ratelimit-global') === 'true' || bodyAt(answer.body, 'global') === true
  return !isGlobal && field(answer, 'x-ratelimit-bucket') !== undefined
}

/**
 * Discord. The shape is the limit of a bot over all routes, 50 requests per second. The limits of single routes are not
 * published: answers report them. 10,000 answers of 401, 403 and 429 in ten minutes, not counting those of scope
 * `shared`, get the address banned: at less than half of that, the queue pauses until they no longer count.
 */
export const discord = createProfile({
  name: 'discord',
  dialect: over('http', discordDialect),
  rules: [
    { match: { status: [401, 403] }, trigger: '4000/10min', action: { pause: '10 min' } },
    {
      match: { status: 429, header: { 'x-ratelimit-scope': '/user|global/' } },
      ...{ trigger: '4000/10min', action: { pause: '10 min' } },
    },
  ],
  shape: safeShape({ quota: 50, windowMs: 1000, jitterMs: STARTING_JITTER_MS, burst: 1 }),
  read: { on: '2026-11-21', at: 'https://docs.discord.com/developers/topics/rate-limits' },
})
