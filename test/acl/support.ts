import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, inject, onTestFinished } from 'vitest'
import { loadLibrary } from '../../src/redis/libraries.ts'
import type { Role } from '../../src/redis/role-commands.ts'
import { installedScripts } from '../../src/redis/scripts.ts'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import { renderAcl } from './acl-line.ts'
import { ROLES } from './roles.ts'

/** ioredis says its version to Redis 7.2 and later, and goes on without (docs/security.md). */
const HARMLESS = 'client|setinfo'
const PASSWORD = 'a password of the tests'

/** What a denial says, as Redis logs it. */
export interface Denial {
  readonly reason: string
  readonly object: string
  readonly username: string
}

/** BullMQ's `connection` of a user. */
export interface UserConnection {
  readonly host: string
  readonly port: number
  readonly username: string
  readonly password: string
  readonly maxRetriesPerRequest: null
  readonly connectionName: string
}

/** A Redis of its own whose users are those of the files in docs/acl. */
export class AclRedis {
  readonly prefix = 'acl-test'
  readonly limits = 'acl-limits'
  #service: RedisService | undefined
  #admin: Redis | undefined

  async start(): Promise<void> {
    this.#service = await startRedis({ ignoreGiven: true, persistence: 'aof', args: ['--appendfsync', 'everysec'] })
    this.#admin = new Redis(this.#service.url)
    for (const role of ROLES) await this.setUser(this.fileOf(role))
  }

  async stop(): Promise<void> {
    this.#admin?.disconnect()
    await this.#service?.stop()
  }

  /** A client that may do everything. */
  get admin(): Redis {
    return this.#admin as Redis
  }

  /** The line of a role's file, filled in. */
  fileOf(role: Role): string {
    const template = readFileSync(new URL(`../../docs/acl/${role}.acl`, import.meta.url), 'utf8').trim()
    const sha256 = createHash('sha256').update(PASSWORD).digest('hex')
    return renderAcl(template, { prefix: this.prefix, limits: this.limits, sha256 })
  }

  /** As an operator does, for those that may not. */
  async loadFunctions(): Promise<void> {
    await loadLibrary(this.admin, installedScripts().library)
  }

  async setUser(line: string): Promise<void> {
    const [word, name, ...rules] = line.split(' ')
    if (word !== 'user') throw new Error(`expected a line of an ACL file; got ${line}`)
    await this.admin.call('ACL', 'SETUSER', name as string, ...rules)
  }

  connection(role: Role, name = `sluice-${role}`): UserConnection {
    const { host, port } = this.#service as RedisService
    return { host, port, username: name, password: PASSWORD, maxRetriesPerRequest: null, connectionName: `acl-${role}` }
  }

  /** A client of a role's user, closed with the test. */
  client(role: Role, name?: string): Redis {
    const client = new Redis(this.connection(role, name))
    client.on('error', () => {})
    onTestFinished(() => client.disconnect())
    return client
  }

  /** What was denied since it was last asked for. */
  async denials(): Promise<Denial[]> {
    const log = (await this.admin.call('ACL', 'LOG')) as string[][]
    await this.admin.call('ACL', 'LOG', 'RESET')
    const denials = log.map((entry): Denial => {
      const fields = new Map(Array.from({ length: entry.length / 2 }, (_, i) => [entry[2 * i], entry[2 * i + 1]]))
      return Object.fromEntries(['reason', 'object', 'username'].map((name) => [name, fields.get(name)])) as never
    })
    return denials.filter(({ object }) => object !== HARMLESS)
  }
}

/** Call it once, at the top of the file. */
export function useAclRedis(): AclRedis {
  // Where a run has no Redis at all, it has said so by now.
  inject('redisUrl')
  const redis = new AclRedis()
  beforeAll(() => redis.start())
  afterAll(() => redis.stop())
  return redis
}
