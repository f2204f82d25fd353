import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { cpus, loadavg, platform, release } from 'node:os'
import { dirname, join } from 'node:path'
import type { Redis } from 'ioredis'

export interface Machine {
  readonly cpus: string
  readonly platform: string
  readonly node: string
  readonly redis: string
  readonly bullmq: string
  readonly ioredis: string
  readonly 'rate-limiter-flexible': string
  readonly '@upstash/ratelimit': string
  readonly bottleneck: string
  /** Load average of the last minute, at the start: if it is well above 0, other programs were running. */
  readonly load: number
}

export async function describeMachine(client: Redis): Promise<Machine> {
  const processors = cpus()
  const info = await client.info('server')
  return {
    cpus: `${processors.length} × ${processors[0]?.model.trim() || 'unknown processor'}`,
    platform: `${platform()} ${release()}`,
    node: process.version,
    redis: /^(?:valkey|redis)_version:(\S+)/m.exec(info)?.[1] ?? 'unknown',
    bullmq: installedVersion('bullmq'),
    ioredis: installedVersion('ioredis'),
    'rate-limiter-flexible': installedVersion('rate-limiter-flexible'),
    '@upstash/ratelimit': installedVersion('@upstash/ratelimit'),
    bottleneck: installedVersion('bottleneck'),
    load: loadavg()[0] ?? 0,
  }
}

// Packages need not export their package.json, so it is searched for above their entry file.
function installedVersion(name: string): string {
  let folder = dirname(createRequire(import.meta.url).resolve(name))
  for (;;) {
    const found = versionIn(join(folder, 'package.json'), name)
    if (found) return found
    if (dirname(folder) === folder) return 'unknown'
    folder = dirname(folder)
  }
}

function versionIn(file: string, name: string): string | undefined {
  try {
    const found = JSON.parse(readFileSync(file, 'utf8')) as { name?: string; version?: string }
    return found.name === name ? found.version : undefined
  } catch {
    return undefined
  }
}
