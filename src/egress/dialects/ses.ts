import { awsDialect } from './aws.ts'
import { feedbackOfConnection } from './connection.ts'
import type { Dialect } from './dialect.ts'
import { pauseMs, slowDown } from './said.ts'
import { breather, is, smtpDialectWith } from './smtp.ts'

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
