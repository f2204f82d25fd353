import type { HttpDialect } from '../dialects/dialect.ts'
import { httpDialectWith } from '../dialects/http.ts'
import { shapelessProfile } from './profile.ts'

/** MailerLite: the seconds to wait are in `X-RateLimit-Retry-After`. developers.mailerlite.com */
const mailerliteDialect: HttpDialect = httpDialectWith({ wait: 'x-ratelimit-retry-after' })

export const mailerlite = shapelessProfile('mailerlite', mailerliteDialect)
