import { safeShape } from '../../limits/safe-shape.ts'
import { slackDialect } from '../dialects/slack.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * Slack's Web API. The shape is that of posting to one channel, a message per second. Other methods have 1, 20, 50 or
 * 100 requests per minute by their tier, each separately, per workspace and app.
 */
export const slack = createProfile({
  name: 'slack',
  dialect: over('http', slackDialect),
  rules: [],
  shape: safeShape({ q: 1, w: 1000, jitterMs: STARTING_JITTER_MS }),
  read: { on: '2026-11-22', at: 'https://docs.slack.dev/apis/web-api/rate-limits' },
})
