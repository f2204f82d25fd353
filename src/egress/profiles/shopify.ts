import { safeShape } from '../../limits/safe-shape.ts'
import { shopifyDialect } from '../dialects/shopify.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * Shopify's Admin API, REST and GraphQL. The shape is that of REST for one app in one store on a standard plan: a
 * bucket of 40 that leaks 2 per second (4 on Advanced, 20 on Plus). GraphQL counts points, 100 per second on a standard
 * plan: give its queue `{ rate: '100/s', burst }`, and each job its points as `cost`, at most `burst`.
 */
export const shopify = createProfile({
  name: 'shopify',
  dialect: over('http', shopifyDialect),
  rules: [],
  shape: safeShape({ model: 'token-bucket', rate: '2/s', burst: 40, jitterMs: STARTING_JITTER_MS }),
  read: { on: '2026-11-22', at: 'https://shopify.dev/docs/api/admin-rest/usage/rate-limits' },
})
