import { safeShape } from '../../limits/safe-shape.ts'
import { sesDialect } from '../dialects/ses.ts'
import { createProfile, STARTING_JITTER_MS } from './profile.ts'

const DAY_MS = 86_400_000

/**
 * Amazon SES, by its API or by SMTP. The shape is that of an account in the sandbox, the only quota that is published:
 * one recipient per second, and 200 in any 24 hours, per region. GetAccount reports the quota of other accounts:
 * replace both the rate and the limit. Recipients are counted: send to one per job, or give jobs a cost and the shape a
 * burst.
 */
export const ses = createProfile({
  name: 'ses',
  dialect: sesDialect,
  rules: [],
  shape: {
    ...safeShape({ q: 1, w: 1000, jitterMs: STARTING_JITTER_MS }),
    limits: [
      {
        ...{ name: 'ses-day', algorithm: 'sliding-window-log' },
        rate: { limit: 200, period: DAY_MS + STARTING_JITTER_MS },
      },
    ],
  },
  read: { on: '2026-11-22', at: 'https://docs.aws.amazon.com/ses/latest/dg/quotas.html' },
})
