import type { Answer, Call, Methods } from './protocol.ts'
import { WorkerGroup } from './worker-group.ts'

// A worker process of the benchmark: answers calls of its parent, and ends with it.
const groups = new Map<string, WorkerGroup>()

function group(queue: string): WorkerGroup {
  const found = groups.get(queue)
  if (!found) throw new Error(`expected an open group for queue ${queue}; there are ${[...groups.keys()].join(', ')}`)
  return found
}

const methods: Methods = {
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
}

async function answer({ call, method, parameter }: Call): Promise<Answer> {
  try {
    return { call, result: await (methods[method] as (parameter: unknown) => Promise<unknown>)(parameter) }
  } catch (error) {
    return { call, error: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

process.on('message', (call: Call) => void answer(call).then((reply) => process.send?.(reply)))
process.once('disconnect', () => process.exit(0))
