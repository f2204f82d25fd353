import type { HttpDialect } from './dialect.ts'
import { httpDialectWith } from './http.ts'

/** MailerLite: the seconds to wait are in `X-RateLimit-Retry-After`. developers.mailerlite.com */
export const mailerliteDialect: HttpDialect = httpDialectWith({ wait: 'x-ratelimit-retry-after' })
