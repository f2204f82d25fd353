import { safeShape } from '../../limits/safe-shape.ts'
import { pauseMs, slowDown } from '../dialects/build-feedback.ts'
import { feedbackOfConnection } from '../dialects/connection.ts'
import type { Dialect } from '../dialects/dialect.ts'
import { breather, is, smtpDialectWith } from '../dialects/smtp.ts'
import { awsDialect } from './aws.ts'
import { createProfile, STARTING_JITTER_MS } from './profile.ts'

/** SES counts per second. */
const NEXT_SECOND_MS = 1500
/**
 * The quota covers a rolling day, so part of it may come back at any time. The guide says to wait up to ten minutes.
 */
const QUOTA_MS = 600_000

const overSmtp = smtpDialectWith([
  {
    name: 'quota',
    matches: (answer) => is(answer, 454) && /daily message quota/i.test(answer.text),
    asks: (why) => [pauseMs(QUOTA_MS, why)],
  },
  {
    name: 'rate',
    matches: (answer) => is(answer, 454) && /throttling failure|maximum sending rate/i.test(answer.text),
    asks: (why) => [breather(NEXT_SECOND_MS, why), slowDown(why)],
  },
])

/**
 * Amazon SES, by SMTP or by its API. A throttled mail is dropped, not queued: the job has to send it again. Source:
 * "Errors related to the sending quotas for your Amazon SES account", SES developer guide.
 */
export const sesDialect: Dialect = (answer) => {
  if (answer.protocol === 'http') return awsDialect(answer)
  if (answer.protocol === 'smtp') return overSmtp(answer)
  return answer.protocol === 'other' ? feedbackOfConnection(answer) : []
}

const DAY_MS = 86_400_000

/**
 * Amazon SES, by its API or by SMTP. The shape is that of an account in the sandbox, the only published quota: one
 * recipient per second, and 200 in any 24 hours, per region. GetAccount reports the quota of other accounts: replace
 * both the rate and the limit. Recipients are counted: send to one per job, or give jobs a cost and the shape a burst.
 */
export const ses = createProfile({
  name: 'ses',
  dialect: sesDialect,
  rules: [],
  shape: {
    ...safeShape({ quota: 1, windowMs: 1000, jitterMs: STARTING_JITTER_MS }),
    limits: [
      {
        ...{ name: 'ses-day', algorithm: 'sliding-window-log' },
        rate: { limit: 200, period: DAY_MS + STARTING_JITTER_MS },
      },
    ],
  },
  read: { on: '2026-11-22', at: 'https://docs.aws.amazon.com/ses/latest/dg/quotas.html' },
})
