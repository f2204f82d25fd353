import { smtpDialect } from '../dialects/smtp.ts'
import { createProfile, over } from './profile.ts'

/**
 * Any SMTP server. The shape, and the rule for a mail provider that defers a sender for its reputation, are KumoMTA's
 * start for an unknown destination.
 */
export const smtp = createProfile({
  name: 'smtp',
  dialect: over('smtp', smtpDialect),
  rules: [
    {
      // Microsoft's consumer mailboxes. The dialect knows Yahoo's codes.
      match: {
        status: '4yz',
        text: ['rate limited due to IP reputation', '/server busy\\. please try again later from/i'],
      },
      action: { slow: '1/min' },
      duration: '90 min',
    },
  ],
  shape: { rate: '100/s', concurrency: 10 },
  read: { on: '2026-11-22', at: 'https://github.com/KumoCorp/kumomta/blob/main/assets/policy-extras/shaping.toml' },
})
