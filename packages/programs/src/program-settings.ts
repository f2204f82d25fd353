import { textLike, urlWith, wholeNumber } from './settings.ts'

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

/** Where the queues are stored. */
export const redisSettings = {
  redisUrl: {
    variable: 'REDIS_URL',
    expected: 'a redis:// or rediss:// URL',
    schema: urlWith(['redis:', 'rediss:']),
    secret: true,
  },
  prefix: {
    variable: 'PREFIX',
    expected: "the prefix of the queue's Redis keys, with a tag such as {mail} on a cluster",
    schema: textLike(/^[^\p{Cc}]{1,128}$/u),
    fallback: 'bull',
  },
} as const

/** How a program stops and what it logs. */
export const runSettings = {
  shutdownTimeoutMs: {
    variable: 'SHUTDOWN_TIMEOUT_MS',
    expected: 'milliseconds from 1000: time for running work to finish after SIGTERM',
    schema: wholeNumber(1000, 3_600_000),
    fallback: '50000',
  },
  logLevel: {
    variable: 'LOG_LEVEL',
    expected: `one of ${LOG_LEVELS.join(', ')}`,
    schema: textLike(new RegExp(`^(${LOG_LEVELS.join('|')})$`)),
    fallback: 'info',
  },
} as const
