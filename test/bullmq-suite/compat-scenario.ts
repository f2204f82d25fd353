import { type BackendFactory, FlowProducer, Job, Queue, type RedisQueueBackend, Worker } from 'bullmq'

const NAME = 'probe'
const TOKEN = 'token'
// BullMQ stores the stack, which would tell the two runs apart.
const FAILURE = Object.assign(new Error('fails'), { stack: 'Error: fails' })

interface Scratch {
  connection: { url: string }
  prefix: string
  /** The time that BullMQ's code sees. */
  clock: { nowMs: number }
}

async function addJobs(queue: Queue, flows: FlowProducer): Promise<void> {
  const retried = { attempts: 2, backoff: 5 }
  await queue.add('standard', { n: 1 }, { jobId: 'standard-1' })
  await queue.add('standard', { n: 2 }, { jobId: 'retried', ...retried })
  await queue.add('standard', { n: 3 }, { jobId: 'discarded', removeOnComplete: true })
  await queue.add('prioritized', {}, { jobId: 'prioritized-1', priority: 3 })
  await queue.add('delayed', {}, { jobId: 'delayed-1', delay: 5 })
  await queue.add('once', {}, { jobId: 'once-1', deduplication: { id: 'once' } })
  await queue.add('once', {}, { jobId: 'once-2', deduplication: { id: 'once' } })
  await queue.addBulk([
    { name: 'bulk', data: {}, opts: { jobId: 'bulk-1' } },
    { name: 'bulk', data: {}, opts: { jobId: 'bulk-2', priority: 1 } },
    { name: 'bulk', data: {}, opts: { jobId: 'bulk-3', delay: 5 } },
  ])
  const children = [
    { name: 'child', queueName: NAME, opts: { jobId: 'child-1' } },
    { name: 'child', queueName: NAME, opts: { jobId: 'child-2', priority: 2 } },
  ]
  await flows.add({ name: 'parent', queueName: NAME, opts: { jobId: 'parent' }, children })
  await queue.upsertJobScheduler('scheduler', { every: 60_000 }, { name: 'tick' })
}

async function end(job: Job, fetchNext: boolean): Promise<unknown[]> {
  const fails = job.id === 'retried' || job.id === 'bulk-1'
  const next = fails
    ? await job.moveToFailed(FAILURE, TOKEN, fetchNext)
    : await job.moveToCompleted({ done: true }, TOKEN, fetchNext)
  return next ?? []
}

/** Runs what waits, every other job fetched by the end of the one before. Returns the ids in order. */
async function drain(worker: Worker): Promise<string[]> {
  const ids: string[] = []
  let job: Job | undefined = await worker.getNextJob(TOKEN, { block: false })
  while (job) {
    ids.push(job.id as string)
    const [json, id] = await end(job, ids.length % 2 === 0)
    job = json ? Job.fromJSON(worker, json as never, id as string) : await worker.getNextJob(TOKEN, { block: false })
    // What a finish fetches is not marked with the token yet.
    if (job) job.token = TOKEN
  }
  return ids
}

/**
 * Lets BullMQ's own classes add, run, fail, retry and finish jobs of every kind, through the backend given. Returns the
 * ids of the jobs in the order in which they ran.
 */
export async function playScenario(
  { connection, prefix, clock }: Scratch,
  backend: BackendFactory<RedisQueueBackend>,
): Promise<string[]> {
  const opts = { connection, prefix }
  const queue = new Queue(NAME, opts, backend)
  const flows = new FlowProducer(opts, backend)
  const worker = new Worker(NAME, null, { ...opts, autorun: false }, backend)
  try {
    await addJobs(queue, flows)
    const ids = await drain(worker)
    clock.nowMs += 10
    ids.push(...(await drain(worker)))
    return ids
  } finally {
    await Promise.all([worker.close(), flows.close(), queue.close()])
  }
}
