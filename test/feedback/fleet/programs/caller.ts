import { extendProfile, profiles } from '../../../../src/egress/index.ts'
import { ShapedWorker } from '../../../../src/index.ts'
import type { Command, Message, Opening } from '../support/messages.ts'
import { type Caller, openTask } from './tasks.ts'

/** A process with workers, opened and closed as its parent says. */
const [url, prefix] = process.argv.slice(2) as [string, string]
const { hostname, port } = new URL(url)
const connection = { host: hostname, port: Number(port), connectionName: prefix, maxRetriesPerRequest: null }
const open = new Map<string, { readonly worker: ShapedWorker; readonly caller: Caller }>()
const tell = (message: Message) => process.send?.(message)

async function openWorker({ queue, task, profile, rules, concurrency, allowUnshaped = false }: Opening) {
  const slots = new Map<string, number>()
  const caller = openTask(task, prefix, (jobId) => slots.get(jobId) ?? 0)
  const known = profiles[profile as keyof typeof profiles]
  const worker = new ShapedWorker(queue, (job) => caller.call(job), {
    ...{ connection, prefix, concurrency, allowUnshaped },
    feedback: rules ? extendProfile(known, { rules }) : known,
  })
  worker.on('departed', ({ id = '' }, { departureTimeUs: slotUs, departedAtUs }) => {
    slots.set(id, slotUs)
    tell({ type: 'start', queue, jobId: id, slotUs, departedAtUs })
  })
  worker.on('completed', ({ id = '', attemptsMade }) => tell({ type: 'end', queue, jobId: id, attemptsMade }))
  worker.on('failed', (job, { message: failedReason }) => {
    if (job?.finishedOn) tell({ type: 'end', queue, jobId: job.id ?? '', attemptsMade: job.attemptsMade, failedReason })
  })
  worker.on('feedback', (change) => tell({ type: 'change', queue, change: JSON.parse(JSON.stringify(change)) }))
  worker.on('error', ({ message }) => tell({ type: 'error', queue, message }))
  open.set(queue, { worker, caller })
  await worker.waitUntilReady()
  tell({ type: 'opened', queue })
}

async function closeWorker(queue: string): Promise<void> {
  const { worker, caller } = open.get(queue)!
  open.delete(queue)
  await worker.close()
  await caller.close()
  tell({ type: 'closed', queue })
}

process.on('message', (command: Command) => {
  if (command.do === 'open') void openWorker(command.opening)
  else if (command.do === 'close') void closeWorker(command.queue)
  else process.exit()
})
tell({ type: 'ready' })
