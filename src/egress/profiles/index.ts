import { grpcDialect } from '../dialects/grpc.ts'
import { httpDialect } from '../dialects/http.ts'
import { akamai } from './akamai.ts'
import { anthropic } from './anthropic.ts'
import { atlassian } from './atlassian.ts'
import { aws } from './aws.ts'
import { azure } from './azure.ts'
import { cloudflare } from './cloudflare.ts'
import { discord } from './discord.ts'
import { github } from './github.ts'
import { gmail } from './gmail.ts'
import { mailerlite } from './mailerlite.ts'
import { openai } from './openai.ts'
import { postgres } from './postgres.ts'
import { shapelessProfile } from './profile.ts'
import { salesforce } from './salesforce.ts'
import { ses } from './ses.ts'
import { shopify } from './shopify.ts'
import { slack } from './slack.ts'
import { smtp } from './smtp.ts'
import { stripe } from './stripe.ts'

/**
 * The supported services, by name.
 *
 * ```ts
 * new ShapedWorker('charges', charge, { connection, shape: profiles.stripe.shape, feedback: profiles.stripe })
 * ```
 */
export const profiles = {
  http: shapelessProfile('http', httpDialect),
  akamai,
  anthropic,
  atlassian,
  aws,
  azure,
  cloudflare,
  grpc: shapelessProfile('grpc', grpcDialect),
  mailerlite,
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
