import { safeShape } from '../../limits/safe-shape.ts'
import { githubDialect } from '../dialects/github.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * GitHub's REST API with a user's token: 5000 requests per hour, and 100 at once. With a burst of 10, writes (5 points
 * each) also stay below 900 points per minute. Requests that create content have lower limits, 80 per minute and 500
 * per hour: give their queue `{ rate: '500/h' }`.
 */
export const github = createProfile({
  name: 'github',
  dialect: over('http', githubDialect),
  rules: [],
  shape: { ...safeShape({ q: 5000, w: 3_600_000, jitterMs: STARTING_JITTER_MS, burst: 10 }), concurrency: 100 },
  read: { on: '2026-11-22', at: 'https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api' },
})
