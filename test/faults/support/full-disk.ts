import { execFileSync } from 'node:child_process'
import type { Redis } from 'ioredis'
import type { RedisService, StartRedisOptions } from '../../../workers/services/redis.ts'

/** Why the kernel can not be told to refuse what a server writes, or undefined where it can. */
export function whyNoFullDisk(): string | undefined {
  if (process.platform !== 'linux') return 'only Linux limits the files of a process that runs'
  try {
    execFileSync('prlimit', ['--version'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'prlimit is not installed, which limits the files of a process that runs'
  }
}

/** So much of what is written next the kernel takes, and no more: a write in part, as on a disk that becomes full. */
const ROOM_BYTES = 300

/**
 * For a server whose disk can be filled: it appends what it is told to a file.
 * @param appendfsync how soon the file is synced
 */
export function onDisk(appendfsync: 'always' | 'everysec'): StartRedisOptions {
  return {
    persistence: 'aof',
    args: ['--appendfsync', appendfsync],
    // A file that reaches its limit ends a process by a signal. A server that ignores it has an error, as of a full disk.
    launcher: ['sh', '-c', `trap '' XFSZ; exec "$@"`, 'sh'],
  }
}

/** From now on the kernel refuses what the server appends to its file. A server that is started again has room. */
export async function fillDisk(service: RedisService, admin: Redis): Promise<void> {
  const bytes = Number(/^aof_current_size:(\d+)/m.exec(await admin.info('persistence'))?.[1])
  limitFiles(service, String(bytes + ROOM_BYTES))
}

/** Ends that. */
export function freeDisk(service: RedisService): void {
  limitFiles(service, 'unlimited')
}

/** Only the soft limit: who is not root may not raise the hard one again. */
function limitFiles({ pid }: RedisService, bytes: string): void {
  if (pid === undefined) throw new Error('the files of a Redis in a container can not be limited')
  execFileSync('prlimit', ['--pid', String(pid), `--fsize=${bytes}:`])
}
