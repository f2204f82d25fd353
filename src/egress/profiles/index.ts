import { akamaiDialect } from '../dialects/akamai.ts'
import { anthropicDialect } from '../dialects/anthropic.ts'
import { atlassianDialect } from '../dialects/atlassian.ts'
import { awsDialect } from '../dialects/aws.ts'
import { azureDialect } from '../dialects/azure.ts'
import { cloudflareDialect } from '../dialects/cloudflare.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { grpcDialect } from '../dialects/grpc.ts'
import { httpDialect } from '../dialects/http.ts'
import { mailerliteDialect } from '../dialects/mailerlite.ts'
import { openaiDialect } from '../dialects/openai.ts'
import { salesforceDialect } from '../dialects/salesforce.ts'
import { discord } from './discord.ts'
import { github } from './github.ts'
import { gmail } from './gmail.ts'
import { postgres } from './postgres.ts'
import { createProfile, over } from './profile.ts'
import { ses } from './ses.ts'
import { shopify } from './shopify.ts'
import { slack } from './slack.ts'
import { smtp } from './smtp.ts'
import { stripe } from './stripe.ts'

/** Without a shape: what these allow differs by account, tier and method, or is set by the operator of the server. */
const shapeless = (name: string, dialect: HttpDialect) =>
  createProfile({ name, dialect: over('http', dialect), rules: [] })

/**
 * The services whose answers are known, by name.
 *
 * ```ts
 * new ShapedWorker('charges', charge, { connection, shape: profiles.stripe.shape, feedback: profiles.stripe })
 * ```
 */
export const profiles = {
  http: shapeless('http', httpDialect),
  akamai: shapeless('akamai', akamaiDialect),
  anthropic: shapeless('anthropic', anthropicDialect),
  atlassian: shapeless('atlassian', atlassianDialect),
  aws: shapeless('aws', awsDialect),
  azure: shapeless('azure', azureDialect),
  cloudflare: shapeless('cloudflare', cloudflareDialect),
  grpc: shapeless('grpc', grpcDialect),
  mailerlite: shapeless('mailerlite', mailerliteDialect),
  openai: shapeless('openai', openaiDialect),
  salesforce: shapeless('salesforce', salesforceDialect),
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
