import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Redis } from 'ioredis'
import { expect } from '../../support/concurrent.ts'

/** What makes a real Redis refuse what is asked of it, and what ends that. */
export interface Refusal {
  /** Further arguments of the server. */
  readonly args?: string[]
  begin(admin: Redis): Promise<unknown>
  end(admin: Redis): Promise<unknown>
}

/** Keys that take the server about three seconds to load, so slowly that it answers meanwhile. */
const LOADED_KEYS = 3000
const LOAD_DELAY_US = 1000

const ping = (admin: Redis) => admin.ping().catch((error: Error) => error.message)

/** Until the server answers PING with this: it has no event for what it begins or ends. */
async function untilPing(admin: Redis, answer: RegExp): Promise<void> {
  await expect.poll(() => ping(admin), { timeout: 60_000, interval: 5 }).toMatch(answer)
}

/** Runs a command that holds the server up, on a connection of its own. */
function runBeside(admin: Redis, run: (beside: Redis) => Promise<unknown>): void {
  const beside = admin.duplicate()
  beside.on('error', () => {})
  const end = () => beside.disconnect()
  run(beside).then(end, end)
}

/** Where a snapshot would be written. */
async function snapshotFile(admin: Redis): Promise<string> {
  const [, dir] = (await admin.config('GET', 'dir')) as string[]
  const [, file] = (await admin.config('GET', 'dbfilename')) as string[]
  return join(dir as string, file as string)
}

/** Gives the server data that take it so long to load. */
export async function populate(admin: Redis): Promise<void> {
  await admin.call('DEBUG', 'POPULATE', LOADED_KEYS, 'loaded', 100)
  await admin.config('SET', 'key-load-delay', LOAD_DELAY_US)
}

/** Resolves once the server loads its data anew: as they are, or with `NOSAVE` as they were saved. */
export async function reload(admin: Redis, ...options: 'NOSAVE'[]): Promise<void> {
  runBeside(admin, (beside) => beside.call('DEBUG', 'RELOAD', ...options))
  await untilPing(admin, /^LOADING/)
}

/** Whether an error is this refusal. A replica refuses functions that write as writes, before it looks at its data. */
export function isRefusal({ message }: Error, name: string): boolean {
  return message.startsWith(`${name} `) || (name === 'MASTERDOWN' && message.startsWith('READONLY '))
}

/** Each by the word that its answers begin with. */
export const refusals: Readonly<Record<string, Refusal>> = {
  BUSY: {
    begin: async (admin) => {
      await admin.config('SET', 'busy-reply-threshold', '20')
      runBeside(admin, (beside) => beside.eval('while true do end', 0))
      await untilPing(admin, /^BUSY/)
    },
    end: async (admin) => {
      await admin.call('SCRIPT', 'KILL')
      // It goes on refusing until the script has noticed.
      await untilPing(admin, /^PONG/)
    },
  },
  READONLY: {
    begin: (admin) => admin.call('REPLICAOF', '127.0.0.1', '1'),
    end: (admin) => admin.call('REPLICAOF', 'NO', 'ONE'),
  },
  MASTERDOWN: {
    begin: async (admin) => {
      await admin.config('SET', 'replica-serve-stale-data', 'no')
      await admin.call('REPLICAOF', '127.0.0.1', '1')
    },
    end: (admin) => admin.call('REPLICAOF', 'NO', 'ONE'),
  },
  LOADING: {
    args: ['--enable-debug-command', 'yes', '--loading-process-events-interval-bytes', '1024'],
    begin: async (admin) => {
      await populate(admin)
      await reload(admin)
    },
    end: async (admin) => {
      await admin.config('SET', 'key-load-delay', 0)
      await untilPing(admin, /^PONG/)
    },
  },
  NOREPLICAS: {
    begin: (admin) => admin.config('SET', 'min-replicas-to-write', '1'),
    end: (admin) => admin.config('SET', 'min-replicas-to-write', '0'),
  },
  MISCONF: {
    begin: async (admin) => {
      // A snapshot can not take the place of a folder.
      const file = await snapshotFile(admin)
      rmSync(file, { force: true })
      mkdirSync(file)
      await admin.config('SET', 'save', '3600 1')
      await admin.bgsave()
      await expect.poll(() => admin.info('persistence'), { interval: 5 }).toMatch(/bgsave_status:err/)
    },
    end: async (admin) => {
      rmSync(await snapshotFile(admin), { recursive: true })
      await admin.config('SET', 'save', '')
    },
  },
}
