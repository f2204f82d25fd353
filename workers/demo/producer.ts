/**
 * One producer of the demonstration, in a process of its own: enqueues the lines in the file INPUT (a JSON array) as
 * fast as it can and, when a queue is full, retries after the time in the refusal.
 */
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import { effectId } from '../../src/effect-id.ts'
import { QueueFullError } from '../../src/index.ts'
import { openQueue, type QueueKind, queueKinds, queueSettings } from './queues.ts'
import type { OutboxLine } from './read-outbox.ts'

/**
 * A producer's report, several times a second: the effects of accepted jobs and the number of refusals since the last
 * report.
 */
export type ProducerNews = Record<QueueKind, { accepted: string[]; refused: number }>

const newsEveryMs = 200
const leastWaitMs = 5
/** The longest delay of a timer; a longer one would fire at once. */
const longestWaitMs = 2 ** 31 - 1

const noNews = (): ProducerNews => ({ email: { accepted: [], refused: 0 }, write: { accepted: [], refused: 0 } })

let news = noNews()

/** Resolves when the report has been sent to the parent. */
function sendReport(): Promise<void> {
  const report = news
  news = noNews()
  return new Promise((resolve, reject) => {
    process.send!(report, (error: Error | null) => (error ? reject(error) : resolve()))
  })
}

async function enqueue(queue: Queue, { kind, data }: OutboxLine, prefix: string): Promise<void> {
  // Exponential: 0.5 s, 1 s, 2 s, 4 s. A retry waits for a slot again.
  const options = { attempts: 5, backoff: { type: 'exponential', delay: 500 } }
  for (;;) {
    try {
      const job = await queue.add('statement' in data ? data.statement : 'mail', data, options)
      news[kind].accepted.push(effectId({ prefix, queueName: queue.name, jobId: job.id!, timestamp: job.timestamp }))
      return
    } catch (error) {
      if (!(error instanceof QueueFullError)) throw error
      news[kind].refused++
      // With jitter, or all producers would retry at the same moment for the same place; and with a minimum, so that
      // there is no tight loop while a due job has not left yet.
      const waitMs = Math.max(error.retryAfterMs, leastWaitMs) * (1 + Math.random())
      await delay(Math.min(waitMs, longestWaitMs))
    }
  }
}

async function produce(kind: QueueKind, lines: readonly OutboxLine[]): Promise<void> {
  const settings = queueSettings(process.env)
  const queue = openQueue(kind, settings)
  try {
    for (const line of lines) if (line.kind === kind) await enqueue(queue, line, settings.prefix)
  } finally {
    await queue.close()
  }
}

const lines = JSON.parse(await readFile(process.env.INPUT ?? '', 'utf8')) as OutboxLine[]
const reporting = setInterval(sendReport, newsEveryMs)
await Promise.all(queueKinds.map((kind) => produce(kind, lines)))
clearInterval(reporting)
await sendReport()
