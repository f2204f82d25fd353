import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type FastifyInstance, fastify } from 'fastify'
import { type Shape, ShapedQueue, ShapedWorker } from '../../../../src/index.ts'
import { onTestFinished } from '../../../../test/support/concurrent.ts'
import type { TestRedis } from '../../../../test/support/redis.ts'
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts'
import { newToken } from '../../../gateway/src/index.ts'
import { type DashboardOptions, dashboard } from '../../src/index.ts'

/** A dashboard that listens on loopback. */
export interface Served {
  readonly app: FastifyInstance
  readonly port: number
  /** With its mount, and a slash at the end. */
  readonly url: string
  /** `fetch`, below the mount. */
  get(path: string, headers?: Record<string, string>): Promise<Response>
  /** As the page posts. */
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Response>
}

export const SAME_ORIGIN = { 'sec-fetch-site': 'same-origin' }

/** Serves a dashboard, for one test. */
export async function serve(options: DashboardOptions, mount = ''): Promise<Served> {
  const app = fastify({ routerOptions: { maxParamLength: 1024 } })
  onTestFinished(async () => {
    const closed = app.close()
    // `fetch` may open a connection and ask nothing over it.
    app.server.closeAllConnections()
    await closed
  })
  await app.register(dashboard(options), { prefix: mount })
  return listen(app, mount)
}

/** Lets an app listen on loopback. */
export async function listen(app: FastifyInstance, mount: string): Promise<Served> {
  await app.listen({ host: '127.0.0.1', port: 0 })
  const address = app.server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  const url = `http://127.0.0.1:${port}${mount}/`
  return {
    ...{ app, port, url },
    get: (path, headers = {}) => fetch(url + path, { headers, redirect: 'manual' }),
    post: (path, body, headers = SAME_ORIGIN) =>
      fetch(url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }),
  }
}

/** A token file of one test, and the token of each name in it. */
export function tokenFile<const Name extends string>(
  queuesOf: Readonly<Record<Name, readonly string[] | undefined>>,
): { readonly file: string; readonly tokens: Readonly<Record<Name, string>> } {
  const made = Object.entries<readonly string[] | undefined>(queuesOf).map(([name, queues]) => {
    const { token, entry } = newToken(name)
    return { name, token, entry: { ...entry, ...(queues && { queues }) } }
  })
  const file = join(temporaryFolder(), 'tokens.json')
  writeFileSync(file, JSON.stringify(made.map(({ entry }) => entry)), { mode: 0o600 })
  return { file, tokens: Object.fromEntries(made.map(({ name, token }) => [name, token])) as Record<Name, string> }
}

/** A queue with a shape that dashboards find, closed with the test. */
export async function shapedQueue(
  redis: TestRedis,
  name: string,
  shape: Shape = { rate: '50/s', capacity: 100 },
): Promise<ShapedQueue> {
  const queue = new ShapedQueue(name, { connection: redis.connection, prefix: redis.prefix, shape })
  onTestFinished(() => queue.close())
  await queue.getShape()
  const client = redis.client()
  await client.sadd(`${redis.prefix}:shaped-queues`, name)
  return queue
}

/** The id of a new job that has logged a line, reported its progress and failed. */
export async function failedJob(redis: TestRedis, queue: ShapedQueue): Promise<string> {
  const worker = new ShapedWorker(
    queue.name,
    async (job) => {
      await job.log('tried')
      await job.updateProgress(40)
      throw new Error('no route')
    },
    { connection: redis.connection, prefix: redis.prefix },
  )
  onTestFinished(() => worker.close())
  const failed = once(worker, 'failed')
  const { id } = await queue.add('job', { secret: 'canary' })
  await failed
  await worker.close()
  return id as string
}
