import type { RedisConnection } from 'bullmq'
import { QueueUnavailableError, SluiceError } from './errors.ts'

/** What Redis answers when it can not serve: the command was refused as a whole. */
const REFUSALS =
  /^(OOM|BUSY|LOADING|READONLY|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|NOAUTH|NOPERM|WRONGPASS)\b/

/** What ioredis and the system say of a connection that is gone; the command may have been sent before. */
const CONNECTION =
  /Connection is closed|aborted due to connection close|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|Command timed out|max retries per request|Stream isn't writeable/i

/**
 * Runs a command of a producer with an end to the wait: a job that can not be stored in time is reported, not queued in
 * memory. The command is sent only over a live connection.
 * @throws QueueUnavailableError
 */
export async function withinAdmitTimeout<T>(
  queueName: string,
  connection: RedisConnection,
  timeoutMs: number,
  run: () => Promise<T>,
): Promise<T> {
  let sent = false
  let givenUp = false
  let timer: NodeJS.Timeout | undefined
  const attempt = async () => {
    await waitUntilLive(connection, timeoutMs)
    // The caller has been told that nothing was stored: it stays true when Redis comes back.
    if (givenUp) throw new Error('Connection is closed')
    sent = true
    return run()
  }
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      givenUp = true
      reject(new QueueUnavailableError(queueName, `Redis did not answer within ${timeoutMs} ms`, sent))
    }, timeoutMs)
  })
  try {
    return await Promise.race([attempt(), timeout])
  } catch (error) {
    throw asUnavailable(queueName, error, sent)
  } finally {
    clearTimeout(timer)
  }
}

function asUnavailable(queueName: string, error: unknown, sent: boolean): unknown {
  if (error instanceof SluiceError || !(error instanceof Error)) return error
  if (REFUSALS.test(error.message)) return new QueueUnavailableError(queueName, error.message, false, { cause: error })
  if (CONNECTION.test(error.message)) return new QueueUnavailableError(queueName, error.message, sent, { cause: error })
  return error
}

async function waitUntilLive(connection: RedisConnection, timeoutMs: number): Promise<void> {
  const client = await connection.client
  if (client.status === 'ready' || client.isCluster) return
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer)
      client.removeListener('ready', done)
      resolve()
    }
    const timer = setTimeout(done, timeoutMs)
    client.on('ready', done)
  })
  if (client.status !== 'ready') throw new Error('Connection is closed')
}
