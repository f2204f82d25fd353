import { grpcDialect } from '../dialects/grpc.ts'
import { httpDialect, httpDialectWith } from '../dialects/http.ts'
import { anthropic } from './anthropic.ts'
import { atlassian } from './atlassian.ts'
import { aws } from './aws.ts'
import { azure } from './azure.ts'
import { cloudflare } from './cloudflare.ts'
import { discord } from './discord.ts'
import { github } from './github.ts'
import { gmail } from './gmail.ts'
import { openai } from './openai.ts'
import { postgres } from './postgres.ts'
import { shapelessProfile } from './profile.ts'
import { salesforce } from './salesforce.ts'
import { ses } from './ses.ts'
import { shopify } from './shopify.ts'
import { slack } from './slack.ts'
import { smtp } from './smtp.ts'
import { stripe } from './stripe.ts'

/** Akamai's APIs: `X-RateLimit-Next` is the time at which the next request is allowed. techdocs.akamai.com */
const akamaiQuota = {
  limit: 'x-ratelimit-limit',
  remaining: 'x-ratelimit-remaining',
  resets: ['x-ratelimit-next', 'x-ratelimit-reset'],
}

/**
 * The supported services, by name.
 *
 * ```ts
 * new ShapedWorker('charges', charge, { connection, shape: profiles.stripe.shape, feedback: profiles.stripe })
 * ```
 */
export const profiles = {
  http: shapelessProfile('http', httpDialect),
  akamai: shapelessProfile('akamai', httpDialectWith({ quotas: [akamaiQuota] })),
  anthropic,
  atlassian,
  aws,
  azure,
  cloudflare,
  grpc: shapelessProfile('grpc', grpcDialect),
  /** The seconds to wait are in `X-RateLimit-Retry-After`. developers.mailerlite.com */
  mailerlite: shapelessProfile('mailerlite', httpDialectWith({ wait: 'x-ratelimit-retry-after' })),
  openai,
  salesforce,
  ses,
  gmail,
  smtp,
  stripe,
  github,
  slack,
  discord,
  shopify,
  postgres,
} as const
