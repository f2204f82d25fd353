/** How to find and run a throwaway Redis. */
export interface StartRedisOptions {
  /** Accept the in-process emulator when no real server is available. Default false. */
  allowEmulator?: boolean
  /** `aof`: writes reach the operating system before they are acknowledged, so a killed server loses none. Default `none`. */
  persistence?: 'none' | 'aof'
  /** Folder of the data, kept on stop. Default: a temporary folder, removed on stop. */
  dir?: string
  /** Default: a free port between 20000 and 30000. */
  port?: number
  /** Do not use `REDIS_URL`: for tests that kill and restart their server. Default false. */
  ignoreGiven?: boolean
  /** Further arguments of the server, after ours, so that they win. */
  args?: string[]
  /** A command that runs the server: what it runs, and with which arguments, comes after its own. Not in a container. */
  launcher?: readonly string[]
  /** A configuration file that is read first. The server may write it, as a Sentinel does. */
  configFile?: string
  /** Added to this process's environment, both for the search (`PATH`, `REDIS_URL`) and for the server. */
  env?: NodeJS.ProcessEnv
}

/** Where a Redis came from. */
export type RedisKind = 'given' | 'path' | 'docker' | 'apt' | 'emulator'

/** A running Redis on loopback that this process started, or the one that was given. */
export interface RedisService {
  readonly url: string
  readonly host: string
  readonly port: number
  /** One line for people: which server, from where. */
  readonly source: string
  readonly kind: RedisKind
  /** The server's process id while it runs as a child of this process, else undefined. */
  readonly pid: number | undefined
  /** Ends the server at once (default SIGKILL) and resolves when it is gone; data in its folder stay. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** Starts the server again on the same port and folder, after a clean shutdown if it is still running. */
  restart(): Promise<void>
  /** Stops the server and removes its temporary folder. May be called twice. */
  stop(): Promise<void>
}

/** The arguments every server of ours gets: no snapshots, never evict, never a configuration file. */
export function serverArguments(options: StartRedisOptions): string[] {
  return [
    ...['--save', ''],
    ...['--maxmemory-policy', 'noeviction'],
    ...['--appendonly', options.persistence === 'aof' ? 'yes' : 'no'],
    // `no` leaves syncing to the kernel but writes before every reply; `everysec` may delay a write by two seconds
    // while a sync is slow, and a killed server would then sometimes lose acknowledged writes.
    ...['--appendfsync', 'no'],
    ...(options.args ?? []),
  ]
}
