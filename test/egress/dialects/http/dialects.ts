import { akamaiDialect } from '../../../../src/egress/dialects/akamai.ts'
import { anthropicDialect } from '../../../../src/egress/dialects/anthropic.ts'
import { atlassianDialect } from '../../../../src/egress/dialects/atlassian.ts'
import { azureDialect } from '../../../../src/egress/dialects/azure.ts'
import { cloudflareDialect } from '../../../../src/egress/dialects/cloudflare.ts'
import { discordDialect } from '../../../../src/egress/dialects/discord.ts'
import { githubDialect } from '../../../../src/egress/dialects/github.ts'
import { grpcDialect } from '../../../../src/egress/dialects/grpc.ts'
import { httpDialect } from '../../../../src/egress/dialects/http.ts'
import { mailerliteDialect } from '../../../../src/egress/dialects/mailerlite.ts'
import { openaiDialect } from '../../../../src/egress/dialects/openai.ts'
import { salesforceDialect } from '../../../../src/egress/dialects/salesforce.ts'
import { shopifyDialect } from '../../../../src/egress/dialects/shopify.ts'
import { slackDialect } from '../../../../src/egress/dialects/slack.ts'
import { stripeDialect } from '../../../../src/egress/dialects/stripe.ts'

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
