import { safeShape } from '../../limits/safe-shape.ts'
import { stripeDialect } from '../dialects/stripe.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * Stripe. The shape is the limit of one endpoint, 25 requests per second, which is also that of a sandbox. A live
 * account has 100 per second over all endpoints.
 */
export const stripe = createProfile({
  name: 'stripe',
  dialect: over('http', stripeDialect),
  rules: [],
  shape: safeShape({ q: 25, w: 1000, jitterMs: STARTING_JITTER_MS, burst: 1 }),
  read: { on: '2026-11-21', at: 'https://docs.stripe.com/rate-limits' },
})
