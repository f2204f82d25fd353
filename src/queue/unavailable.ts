import type { RedisConnection } from 'bullmq'
import { InvalidInputError, QueueUnavailableError, SluiceError } from '../errors.ts'
import type { Client } from '../redis/commands.ts'
import { afterMs, withinMs } from '../redis/deadlines.ts'
import { failureKind } from '../redis/failures.ts'

export const DEFAULT_ADMIT_TIMEOUT_MS = 5000
/** A longer timer ends at once. */
const MAX_ADMIT_TIMEOUT_MS = 2 ** 31 - 1

/** @throws InvalidInputError */
export function checkAdmitTimeout(admitTimeoutMs: unknown): void {
  if (admitTimeoutMs === undefined) return
  if (typeof admitTimeoutMs === 'number' && admitTimeoutMs > 0 && admitTimeoutMs <= MAX_ADMIT_TIMEOUT_MS) return
  throw new InvalidInputError(
    `admitTimeoutMs must be a number of ms > 0 and at most ${MAX_ADMIT_TIMEOUT_MS}; got ${String(admitTimeoutMs)}`,
  )
}

/**
 * Bounds how long a producer's command may take, and how long Redis may be silent to a read: a job that cannot be
 * stored in time is reported, not kept in memory.
 */
export class AdmitTimeout {
  readonly #connection: RedisConnection
  readonly #timeoutMs: number
  #client: Client | undefined
  #living: Promise<void> | undefined
  /** The last error of the connection since it was ready, such as a wrong password. */
  #lastError: Error | undefined

  constructor(connection: RedisConnection, timeoutMs = DEFAULT_ADMIT_TIMEOUT_MS) {
    this.#connection = connection
    this.#timeoutMs = timeoutMs
    connection.on('error', (error: Error) => {
      this.#lastError = error
    })
    connection.on('ready', () => {
      this.#lastError = undefined
    })
  }

  /**
   * Runs a command; it is only sent over a live connection.
   * @throws QueueUnavailableError
   */
  run<T>(queueName: string, command: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      let sent = false
      let givenUp = false
      const done = afterMs(this.#timeoutMs, () => {
        givenUp = true
        reject(this.#unanswered(queueName, sent))
      })
      const send = () => {
        // The caller's error says that nothing was stored; that must stay true when Redis comes back.
        if (givenUp) throw new Error('Connection is closed')
        sent = true
        return command()
      }
      const attempt = this.#client?.status === 'ready' ? send() : this.#live().then(send)
      attempt.then(
        (value) => {
          done()
          resolve(value)
        },
        (error: unknown) => {
          done()
          reject(asUnavailable(queueName, error, sent))
        },
      )
    })
  }

  /**
   * Runs a read: it may take longer while Redis answers.
   * @param probe a command that Redis answers at once, to the same node
   * @throws QueueUnavailableError
   */
  async read<T>(queueName: string, read: () => Promise<T>, probe: (client: Client) => Promise<unknown>): Promise<T> {
    const halfMs = this.#timeoutMs / 2
    const reading = read().then((value) => ({ value }))
    const heard = async () => {
      await probe(await this.#connection.client)
      return true as const
    }
    try {
      for (;;) {
        const answer = await withinMs(halfMs, reading)
        if (answer) return answer.value
        const sooner = await withinMs(halfMs, Promise.race([reading, heard()]))
        if (sooner === undefined) break
        if (sooner !== true) return sooner.value
      }
    } catch (error) {
      throw asUnavailable(queueName, error, false)
    }
    throw this.#unanswered(queueName, false)
  }

  #unanswered(queueName: string, sent: boolean): QueueUnavailableError {
    const cause = this.#lastError
    const reason = `Redis did not answer within ${this.#timeoutMs} ms${cause ? ` (${cause.message})` : ''}`
    return new QueueUnavailableError(queueName, reason, sent, cause && { cause })
  }

  // Concurrent callers share one listener.
  #live(): Promise<void> {
    this.#living ??= this.#connect().finally(() => {
      this.#living = undefined
    })
    return this.#living
  }

  async #connect(): Promise<void> {
    this.#client = await this.#connection.client
    await waitUntilLive(this.#client, this.#timeoutMs)
  }
}

/** Turns an error of Redis or of the connection into an error of the queue; any other error stays. */
export function asUnavailable(queueName: string, error: unknown, sent: boolean): unknown {
  if (error instanceof SluiceError || !(error instanceof Error)) return error
  const kind = failureKind(error)
  if (!kind) return error
  const { addedIds } = error as { readonly addedIds?: SluiceError['addedIds'] }
  const isPartlyStored = addedIds?.some((id) => id !== undefined) ?? false
  const mayBeStored = isPartlyStored || (sent && kind === 'connection')
  const unavailable = new QueueUnavailableError(queueName, error.message, mayBeStored, { cause: error })
  return addedIds ? Object.assign(unavailable, { addedIds }) : unavailable
}

async function waitUntilLive(client: Client, timeoutMs: number): Promise<void> {
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
