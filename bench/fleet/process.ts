import { serve } from './calls.ts'
import type { Methods } from './protocol.ts'
import { WorkerGroup } from './worker-group.ts'

const groups = new Map<string, WorkerGroup>()

function group(queue: string): WorkerGroup {
  const found = groups.get(queue)
  if (!found) throw new Error(`expected an open group for queue ${queue}; there are ${[...groups.keys()].join(', ')}`)
  return found
}

serve<Methods>({
  open: async (spec) => {
    const opened = new WorkerGroup(spec)
    groups.set(spec.queue, opened)
    await opened.open()
  },
  takeStarts: (queue) => group(queue).takeStarts(),
  drained: (queue) => group(queue).drained(),
  close: async (queue) => {
    await group(queue).close()
    groups.delete(queue)
  },
})
