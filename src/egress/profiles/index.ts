import { anthropicDialect } from '../dialects/anthropic.ts'
import { awsDialect } from '../dialects/aws.ts'
import { httpDialect } from '../dialects/http.ts'
import { openaiDialect } from '../dialects/openai.ts'
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

/** Any HTTP API: `Retry-After`, `RateLimit`, `X-RateLimit-*`. */
const http = createProfile({ name: 'http', dialect: over('http', httpDialect), rules: [] })
/** Has no shape: AWS's limits differ from service to service and from account to account. */
const aws = createProfile({ name: 'aws', dialect: over('http', awsDialect), rules: [] })
/** Has no shape: the limits are those of a model and an account's tier, and come with each answer. */
const openai = createProfile({ name: 'openai', dialect: over('http', openaiDialect), rules: [] })
/** Has no shape, for the same reason. */
const anthropic = createProfile({ name: 'anthropic', dialect: over('http', anthropicDialect), rules: [] })

/**
 * The services whose answers are known, by name.
 *
 * ```ts
 * new ShapedWorker('charges', charge, { connection, shape: profiles.stripe.shape, feedback: profiles.stripe })
 * ```
 */
export const profiles = {
  http,
  aws,
  openai,
  anthropic,
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
