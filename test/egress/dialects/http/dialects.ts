import { grpcDialect } from '../../../../src/egress/dialects/grpc.ts'
import { httpDialect } from '../../../../src/egress/dialects/http.ts'
import { akamaiDialect } from '../../../../src/egress/profiles/akamai.ts'
import { anthropicDialect } from '../../../../src/egress/profiles/anthropic.ts'
import { atlassianDialect } from '../../../../src/egress/profiles/atlassian.ts'
import { azureDialect } from '../../../../src/egress/profiles/azure.ts'
import { cloudflareDialect } from '../../../../src/egress/profiles/cloudflare.ts'
import { discordDialect } from '../../../../src/egress/profiles/discord.ts'
import { githubDialect } from '../../../../src/egress/profiles/github.ts'
import { mailerliteDialect } from '../../../../src/egress/profiles/mailerlite.ts'
import { openaiDialect } from '../../../../src/egress/profiles/openai.ts'
import { salesforceDialect } from '../../../../src/egress/profiles/salesforce.ts'
import { shopifyDialect } from '../../../../src/egress/profiles/shopify.ts'
import { slackDialect } from '../../../../src/egress/profiles/slack.ts'
import { stripeDialect } from '../../../../src/egress/profiles/stripe.ts'

/** Every dialect of HTTP. */
export const DIALECTS = {
  http: httpDialect,
  github: githubDialect,
  discord: discordDialect,
  shopify: shopifyDialect,
  stripe: stripeDialect,
  slack: slackDialect,
  openai: openaiDialect,
  anthropic: anthropicDialect,
  azure: azureDialect,
  cloudflare: cloudflareDialect,
  akamai: akamaiDialect,
  mailerlite: mailerliteDialect,
  atlassian: atlassianDialect,
  salesforce: salesforceDialect,
  grpc: grpcDialect,
}
