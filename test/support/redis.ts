import { randomBytes } from 'node:crypto'
import { basename } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Redis, type RedisOptions } from 'ioredis'
import { afterAll, inject } from 'vitest'

const CLOSE_TIMEOUT_MS = 20_000

/** Arguments of a server that replicas follow at once: by default it waits five seconds for further ones. */
export const FOLLOWED_AT_ONCE: readonly string[] = ['--repl-diskless-sync-delay', '0']

/** ioredis's options, without the one that changes the type of the client. */
export type ClientOptions = Omit<RedisOptions, 'replyMapping'>

/** The address of a Redis, as options of ioredis and BullMQ. */
export interface RedisAddress {
  host: string
  port: number
  username?: string
  password?: string
  db?: number
  tls?: Record<string, never>
}

/** A test file's share of the run's Redis. */
export interface TestRedis {
  readonly url: string
  /** Unique to this file. Pass it to every queue, worker and flow producer as `prefix`. */
  readonly prefix: string
  /** For BullMQ's `connection`. Its connections are named after the prefix, so that one left open is found. */
  readonly connection: RedisAddress & { connectionName: string; maxRetriesPerRequest: null }
  /** A new client, closed after the file. */
  client(options?: ClientOptions): Redis
  /** Deletes every key under the prefix and returns how many there were. Runs automatically after the file. */
  cleanup(): Promise<number>
}

/**
 * Assigns a test file its prefix in the run's Redis. Call it once, at the top of the file and before any other hook:
 * `const redis = useRedis(import.meta.url)`. After the file it closes the clients it created, fails the file if a
 * connection named after the prefix is still open, deletes the keys and fails if new ones are written after that.
 */
export function useRedis(fileUrl: string): TestRedis {
  const url = inject('redisUrl')
  const prefix = uniquePrefix(fileUrl)
  const connection = { ...connectionOptions(url), connectionName: prefix, maxRetriesPerRequest: null }
  const clients: Redis[] = []
  const client = (options: ClientOptions = {}) => {
    const made = new Redis({ ...connection, ...options })
    clients.push(made)
    return made
  }
  const cleanup = () => withAdmin(url, (admin) => deleteKeys(admin, prefix))
  afterAll(async () => {
    for (const made of clients) made.disconnect()
    await withAdmin(url, async (admin) => {
      try {
        await assertNoConnections(admin, prefix)
      } finally {
        await deleteKeys(admin, prefix)
      }
      await assertNoKeys(admin, prefix)
    })
  })
  return { url, prefix, connection, client, cleanup }
}

/** The ioredis options for a `redis://` or `rediss://` URL. */
export function connectionOptions(url: string): RedisAddress {
  const { protocol, hostname, port, username, password, pathname } = new URL(url)
  return {
    host: hostname,
    port: Number(port || 6379),
    ...(username !== '' && { username: decodeURIComponent(username) }),
    ...(password !== '' && { password: decodeURIComponent(password) }),
    ...(pathname.length > 1 && { db: Number(pathname.slice(1)) }),
    ...(protocol === 'rediss:' && { tls: {} }),
  }
}

function uniquePrefix(fileUrl: string): string {
  const name = basename(new URL(fileUrl).pathname)
    .replace(/(\.test)?\.ts$/, '')
    .replace(/[^a-z0-9-]/gi, '-')
  return `test-${name}-${randomBytes(4).toString('hex')}`
}

async function withAdmin<Result>(url: string, use: (admin: Redis) => Promise<Result>): Promise<Result> {
  const admin = new Redis({ ...connectionOptions(url), connectionName: 'test-support' })
  try {
    return await use(admin)
  } finally {
    admin.disconnect()
  }
}

async function deleteKeys(admin: Redis, prefix: string): Promise<number> {
  const keys = await keysUnder(admin, prefix)
  for (let start = 0; start < keys.length; start += 1000) await admin.unlink(...keys.slice(start, start + 1000))
  return keys.length
}

async function keysUnder(admin: Redis, prefix: string): Promise<string[]> {
  const keys = new Set<string>()
  // A prefix in braces keeps a queue in one slot of a cluster.
  for (const pattern of [`${prefix}*`, `{${prefix}*`]) {
    for await (const page of admin.scanStream({ match: pattern, count: 1000 })) {
      for (const key of page as string[]) keys.add(key)
    }
  }
  return [...keys]
}

/** The server notices a disconnect a moment after the client, hence the short wait. */
async function assertNoConnections(admin: Redis, prefix: string): Promise<void> {
  const deadline = Date.now() + CLOSE_TIMEOUT_MS
  for (;;) {
    const list = (await admin.client('LIST')) as string
    const open = list.split('\n').filter((line) => line.includes(` name=${prefix}`))
    if (open.length === 0) return
    if (Date.now() > deadline) {
      throw new Error(
        `expected every connection of this file to be closed, ${open.length} are open:\n${open.join('\n')}`,
      )
    }
    await delay(20)
  }
}

async function assertNoKeys(admin: Redis, prefix: string): Promise<void> {
  const keys = await keysUnder(admin, prefix)
  if (keys.length > 0) throw new Error(`something still writes under ${prefix} after the file: ${keys.join(' ')}`)
}
