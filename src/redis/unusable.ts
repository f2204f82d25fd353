import { failureKind } from './failures.ts'

/** ioredis's messages if nothing came in time, for a connection or a command. */
const SILENCE = /^(?:Command timed out|connect ETIMEDOUT|Socket timeout)/

/**
 * Why a program cannot use its Redis, in one line: the expected and the actual result.
 * @param host of its URL, which may hold a password
 */
export function unusableText(host: string, error: Error): string {
  if (error.message.startsWith('NOAUTH')) {
    return `Redis at ${host} asks for a password: expected one in its URL (redis://:PASSWORD@${host}), got none (NOAUTH)`
  }
  if (failureKind(error) === 'refused') return `Redis at ${host} refuses: ${error.message}`
  return `cannot use Redis at ${host}: ${reasonOf(error)}`
}

function reasonOf(error: Error): string {
  // If several addresses fail, Node throws an AggregateError without a message.
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map((one) => reasonOf(one as Error)).join(', ')
  }
  // For a cluster, ioredis only reports that no node answered well; the last node's error has the reason.
  if ('lastNodeError' in error && error.lastNodeError instanceof Error) {
    const why = reasonOf(error.lastNodeError)
    return /cluster support disabled/i.test(why) ? 'it is not a cluster: leave out --cluster and REDIS_CLUSTER' : why
  }
  if (SILENCE.test(error.message)) return `expected an answer, got none in time (${error.message})`
  return error.message || error.name
}
