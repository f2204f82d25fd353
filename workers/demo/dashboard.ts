import { fastify } from 'fastify'
import { dashboard } from 'sluice-dashboard'
import type { Closers } from 'sluice-programs'

/** Serves the dashboard of the run's queues, on this machine alone. @returns its address */
export async function openDashboard(
  { redisUrl, prefix }: { readonly redisUrl: string; readonly prefix: string },
  closers: Closers,
): Promise<string> {
  const app = fastify({ forceCloseConnections: true })
  closers.push(() => app.close())
  const options = { connection: { url: redisUrl }, prefix, title: 'npm start', allowActions: true }
  await app.register(dashboard({ ...options, actor: () => 'npm start' }))
  return app.listen({ host: '127.0.0.1', port: 0 })
}
