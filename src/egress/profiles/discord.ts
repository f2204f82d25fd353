import { safeShape } from '../../limits/safe-shape.ts'
import { discordDialect } from '../dialects/discord.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * Discord. The shape is the limit of a bot over all routes, 50 requests per second. The limits of single routes are not
 * published: answers report them. 10,000 answers of 401, 403 and 429 in ten minutes, not counting those of scope
 * `shared`, get the address banned: at less than half of that, the queue pauses until they no longer count.
 */
export const discord = createProfile({
  name: 'discord',
  dialect: over('http', discordDialect),
  rules: [
    { match: { status: [401, 403] }, trigger: '4000/10min', action: { pause: '10 min' } },
    {
      match: { status: 429, header: { 'x-ratelimit-scope': '/user|global/' } },
      ...{ trigger: '4000/10min', action: { pause: '10 min' } },
    },
  ],
  shape: safeShape({ q: 50, w: 1000, jitterMs: STARTING_JITTER_MS, burst: 1 }),
  read: { on: '2026-11-21', at: 'https://docs.discord.com/developers/topics/rate-limits' },
})
