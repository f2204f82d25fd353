import type { RedisConnection } from 'bullmq'
import { QueueUnavailableError, SluiceError } from '../errors.ts'
import type { Client } from '../redis/commands.ts'
import { Deadlines } from '../redis/deadlines.ts'
import { failureKind } from '../redis/failures.ts'

const DEFAULT_ADMIT_TIMEOUT_MS = 5000

/** Runs the commands of a producer with an end to the wait: what can not be stored in time is reported, not kept in memory. */
export class AdmitTimeout {
  readonly #connection: RedisConnection
  readonly #timeoutMs: number
  readonly #deadlines: Deadlines
  #client: Client | undefined
  #living: Promise<void> | undefined

  constructor(connection: RedisConnection, timeoutMs = DEFAULT_ADMIT_TIMEOUT_MS) {
    this.#connection = connection
    this.#timeoutMs = timeoutMs
    this.#deadlines = new Deadlines(timeoutMs)
  }

  /**
   * Runs a command; it is sent only over a live connection.
   * @throws QueueUnavailableError
   */
  run<T>(queueName: string, command: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      let sent = false
      let givenUp = false
      const done = this.#deadlines.add(() => {
        givenUp = true
        reject(new QueueUnavailableError(queueName, `Redis did not answer within ${this.#timeoutMs} ms`, sent))
      })
      const send = () => {
        // The caller has been told that nothing was stored: it stays true when Redis comes back.
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

  // Callers that wait together listen once.
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

function asUnavailable(queueName: string, error: unknown, sent: boolean): unknown {
  if (error instanceof SluiceError || !(error instanceof Error)) return error
  const kind = failureKind(error)
  if (!kind) return error
  return new QueueUnavailableError(queueName, error.message, sent && kind === 'connection', { cause: error })
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
