import type { HttpDialect } from '../dialects/dialect.ts'
import { httpDialectWith } from '../dialects/http.ts'
import { shapelessProfile } from './profile.ts'

/** Akamai's APIs: `X-RateLimit-Next` is the time at which the next request is allowed. techdocs.akamai.com */
const akamaiDialect: HttpDialect = httpDialectWith({
  quotas: [
    {
      limit: 'x-ratelimit-limit',
      remaining: 'x-ratelimit-remaining',
      resets: ['x-ratelimit-next', 'x-ratelimit-reset'],
    },
  ],
})

export const akamai = shapelessProfile('akamai', akamaiDialect)
