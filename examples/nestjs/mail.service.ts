import { InjectFlowProducer, InjectQueue } from '@nestjs/bullmq'
import { Injectable } from '@nestjs/common'
import { QueueFullError, type ShapedFlowProducer, type ShapedQueue, TooLargeError } from 'sluice'

@Injectable()
export class MailService {
  constructor(
    @InjectQueue('mails') readonly queue: ShapedQueue<{ to: string }>,
    @InjectFlowProducer('mail-flows') readonly flows: ShapedFlowProducer,
  ) {}

  /** A digest that is sent after its emails: all of them are accepted, or none. */
  async digest(names: readonly string[]): Promise<string> {
    const children = names.map((name) => ({ queueName: 'mails', name: 'mail', data: { to: `${name}@example.com` } }))
    try {
      await this.flows.add({ queueName: 'mails', name: 'digest', data: { to: 'editor@example.com' }, children })
      return 'accepted'
    } catch (error) {
      if (error instanceof QueueFullError) return `come back in ${error.retryAfterMs} ms`
      if (error instanceof TooLargeError) return error.message
      throw error
    }
  }
}
