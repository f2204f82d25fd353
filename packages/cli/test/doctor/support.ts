import { randomBytes } from 'node:crypto'
import { Redis } from 'ioredis'
import { onTestFinished } from 'vitest'
import { Inspector } from '../../../../src/inspect/inspector.ts'
import type { Role } from '../../../../src/redis/role-commands.ts'
import { type AclRedis, useAclRedis } from '../../../../test/acl/support.ts'
import { type RedisService, type StartRedisOptions, startRedis } from '../../../../workers/services/redis.ts'
import type { Finding, Level } from '../../src/doctor/check.ts'
import { type DiagnoseOptions, diagnose } from '../../src/doctor/diagnose.ts'

/** Those that are not as they should be. */
export function troubles(findings: readonly Finding[]): Finding[] {
  return findings.filter(({ level }) => level === 'error' || level === 'warning')
}

/** The levels of one check, in order. */
export function levelsOf(findings: readonly Finding[], check: string): Level[] {
  return findings.filter((finding) => finding.check === check).map(({ level }) => level)
}

/** A Redis as it should be, whose users are those of docs/acl, and a doctor for it. */
export class Ward {
  readonly redis: AclRedis

  constructor() {
    this.redis = useAclRedis()
  }

  get prefix(): string {
    return this.redis.prefix
  }

  get admin(): Redis {
    return this.redis.admin
  }

  /** What the doctor finds as a user. */
  examine(options: Partial<DiagnoseOptions> & { readonly user?: Role } = {}): Promise<Finding[]> {
    const { user = 'operator', ...others } = options
    return this.examineWith(this.redis.client(user), others)
  }

  examineWith(client: Redis, options: Partial<DiagnoseOptions> = {}): Promise<Finding[]> {
    const { prefix } = this
    const inspector = new Inspector({ connection: client, prefix })
    return diagnose({ client, inspector, prefix, limitsPrefix: this.redis.limits, queues: [], ...options })
  }

  /** A user with the rights of a role, changed by further rules; gone with the test. */
  async userLike(role: Role, ...rules: readonly string[]): Promise<Redis> {
    const name = `like-${role}-${randomBytes(4).toString('hex')}`
    await this.redis.setUser(this.redis.fileOf(role).replace(`user sluice-${role} `, `user ${name} `))
    await this.admin.call('ACL', 'SETUSER', name, ...rules)
    onTestFinished(async () => void (await this.admin.call('ACL', 'DELUSER', name)))
    return this.redis.client(role, name)
  }

  /** Sets the server up otherwise until the test ends. */
  async configure(settings: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, value] of Object.entries(settings)) {
      const [, before = ''] = (await this.admin.config('GET', name)) as string[]
      await this.admin.config('SET', name, value)
      onTestFinished(async () => void (await this.admin.config('SET', name, before)))
    }
  }

  /** What a canary left. */
  async leftKeys(): Promise<string[]> {
    const named = await this.admin.keys('*sluice-doctor*')
    const listed = await this.admin.smembers(`${this.prefix}:shaped-queues`)
    return [...named, ...listed.filter((name) => name.startsWith('sluice-doctor'))]
  }
}

/** One more server, stopped with the test, and a client of it. */
export async function server(options: StartRedisOptions): Promise<{ service: RedisService; client: Redis }> {
  const service = await startRedis({ ...options, ignoreGiven: true })
  const client = new Redis(service.url)
  client.on('error', () => {})
  onTestFinished(async () => {
    client.disconnect()
    await service.stop()
  })
  return { service, client }
}
