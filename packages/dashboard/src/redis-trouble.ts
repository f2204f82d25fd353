import { ProblemError } from 'sluice-gateway/internal'

/** Why Redis does not serve, by its error or ioredis's, in the words of the page. */
const CAUSES: readonly (readonly [error: RegExp, words: string])[] = [
  [/^LOADING\b/, 'Redis is loading its data'],
  [/^BUSY\b/, 'Redis is busy with a script'],
  [/^(NOAUTH|WRONGPASS|NOPERM)\b/, 'Redis refuses the user of this dashboard'],
  [/^MASTERDOWN\b/, 'Redis is a replica that has lost its master'],
  [/^READONLY\b/, 'Redis is a replica, which takes no writes'],
  [/^OOM\b/, 'Redis refuses writes: its memory is full'],
  [/^MISCONF\b/, 'Redis refuses writes: its disk fails'],
  [/^NOREPLICAS\b/, 'Redis refuses writes: too few replicas are in step'],
  [/^(CLUSTERDOWN|TRYAGAIN|MOVED|ASK)\b|Cluster|slots cache|startup nodes/, 'The Redis cluster does not serve now'],
  [/timed out|is silent|ETIMEDOUT/i, 'Redis does not answer'],
]

/** For callers: the message of Redis or the system would name hosts. */
export function redisTrouble(error: unknown): string {
  if (error instanceof ProblemError) return error.message
  const { message } = error as Error
  return CAUSES.find(([pattern]) => pattern.test(message))?.[1] ?? 'Redis cannot be reached'
}
