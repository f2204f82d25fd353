import { BullModule } from '@nestjs/bullmq'
import { Module } from '@nestjs/common'
import { ShapedFlowProducer, ShapedQueue, ShapedWorker } from 'sluice'
import { MailProcessor } from './mail.processor.ts'
import { MailService } from './mail.service.ts'
import { connection, prefix, shape } from './settings.ts'

// From here on every queue, worker and flow producer of @nestjs/bullmq is one of Sluice's.
BullModule.queueClass = ShapedQueue
BullModule.workerClass = ShapedWorker
BullModule.flowProducerClass = ShapedFlowProducer

// What @nestjs/bullmq does not know (shape) reaches the queue's constructor as it is.
const queue = { name: 'mails', shape }

@Module({
  imports: [
    BullModule.forRoot({ connection, prefix }),
    BullModule.registerQueue(queue),
    BullModule.registerFlowProducer({ name: 'mail-flows' }),
  ],
  providers: [MailProcessor, MailService],
})
export class MailModule {}
