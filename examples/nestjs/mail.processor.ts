import { OnWorkerEvent, Processor, WorkerHost } from '@nestjs/bullmq'
import type { Job } from 'bullmq'
import { shape } from './shape.ts'

// What @nestjs/bullmq does not know (shape) reaches the worker's constructor as it is.
const workerOptions = { concurrency: 5, shape }

@Processor('mails', workerOptions)
export class MailProcessor extends WorkerHost {
  #lastStartMs: number | undefined

  async process(job: Job<{ to: string }>): Promise<string> {
    return `mailed ${job.data.to}`
  }

  @OnWorkerEvent('active')
  onActive(job: Job<{ to: string }>): void {
    // In a shaped queue processedOn is the departure time of the job.
    const startMs = job.processedOn as number
    const gap = this.#lastStartMs === undefined ? 'first' : `${startMs - this.#lastStartMs} ms after the one before`
    this.#lastStartMs = startMs
    console.log(`${job.name} to ${job.data.to} departs: ${gap}`)
  }
}
