import { serve } from '../fleet/calls.ts'
import { openJobDoor } from './job-doors.ts'
import { openLimitedDoor } from './limited-doors.ts'
import type { OpenDoor } from './listening.ts'
import { type DoorMethods, JOB_DOORS, type JobDoor, type LimitedDoor } from './protocol.ts'

let open: OpenDoor | undefined
const isJobDoor = (door: JobDoor | LimitedDoor): door is JobDoor => (JOB_DOORS as readonly string[]).includes(door)

serve<DoorMethods>({
  open: async (spec) => {
    const { door } = spec
    open = isJobDoor(door) ? await openJobDoor({ ...spec, door }) : await openLimitedDoor({ ...spec, door })
    return open.url
  },
  cpuUs: async () => {
    const { user, system } = process.cpuUsage()
    return user + system
  },
  heapBytes: async () => {
    global.gc?.()
    const { heapUsed, external } = process.memoryUsage()
    return heapUsed + external
  },
  close: async () => {
    await open?.close()
    open = undefined
  },
})
