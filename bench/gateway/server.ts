import { serve } from '../fleet/calls.ts'
import { openJobServer } from './job-servers.ts'
import { openLimitedServer } from './limited-servers.ts'
import type { OpenServer } from './listening.ts'
import { JOB_SERVERS, type JobServer, type LimitedServer, type ServerMethods } from './protocol.ts'

let open: OpenServer | undefined
const isJobServer = (server: JobServer | LimitedServer): server is JobServer =>
  (JOB_SERVERS as readonly string[]).includes(server)

serve<ServerMethods>({
  open: async (spec) => {
    const { server } = spec
    open = isJobServer(server) ? await openJobServer({ ...spec, server }) : await openLimitedServer({ ...spec, server })
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
