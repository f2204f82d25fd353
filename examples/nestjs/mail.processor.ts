import { Processor, WorkerHost } from '@nestjs/bullmq'
import type { Job } from 'bullmq'
import { shape } from './settings.ts'

// As for the queue: shape reaches the worker's constructor.
const options = { concurrency: 5, shape, removeOnComplete: { count: 1000 }, removeOnFail: { count: 5000 } }

@Processor('mails', options)
export class MailProcessor extends WorkerHost {
  async process(job: Job<{ to: string }>): Promise<string> {
    // In a shaped queue processedOn is the time at which the meter let the job start.
    console.log(`${job.processedOn} ${job.name} to ${job.data.to}`)
    return `mailed ${job.data.to}`
  }
}
