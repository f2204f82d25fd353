import { InjectFlowProducer, InjectQueue } from '@nestjs/bullmq'
import { Injectable, type OnApplicationShutdown } from '@nestjs/common'
import { QueueEvents } from 'bullmq'
import { type ShapedFlowProducer, type ShapedQueue, SluiceError } from 'sluice'

type Mail = { to: string }

@Injectable()
export class MailService implements OnApplicationShutdown {
  readonly #queue: ShapedQueue<Mail>
  readonly #flows: ShapedFlowProducer
  readonly #events: QueueEvents

  constructor(
    @InjectQueue('mails') queue: ShapedQueue<Mail>,
    @InjectFlowProducer('mail-flows') flows: ShapedFlowProducer,
  ) {
    this.#queue = queue
    this.#flows = flows
    const { connection, prefix } = queue.opts
    this.#events = new QueueEvents('mails', { connection, ...(prefix === undefined ? {} : { prefix }) })
  }

  /** A digest that is sent after its mails: admitted whole, or not at all. */
  async digest(names: readonly string[]): Promise<string> {
    await this.#events.waitUntilReady()
    const children = names.map((name) => ({ queueName: 'mails', name: 'mail', data: { to: `${name}@example.com` } }))
    const flow = { queueName: 'mails', name: 'digest', data: { to: 'editor@example.com' }, children }
    try {
      const { job } = await this.#flows.add(flow)
      return await job.waitUntilFinished(this.#events)
    } catch (error) {
      // QueueFullError: come back after retryAfterMs. TooLargeError: it can never fit.
      if (!(error instanceof SluiceError)) throw error
      return `refused: ${error.message}`
    }
  }

  async removeEverything(): Promise<void> {
    await this.#queue.obliterate({ force: true })
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#events.close()
  }
}
