import { existsSync } from 'node:fs'
import { delimiter, dirname } from 'node:path'
import type { DebianSuite } from './apt-download.ts'
import { findProgram } from './find-program.ts'
import { type AptServer, fetchAptServer } from './redis-apt.ts'
import { runCommand } from './run-command.ts'

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** A server that the library is tested against, by the Debian release that ships it. */
export interface Engine {
  name: string
  packageName: AptServer['packageName']
  suite: 'bookworm' | 'trixie'
}

/** The servers of `npm run test:engines`. */
export const engines: readonly Engine[] = [
  { name: 'Redis 7', packageName: 'redis-server', suite: 'bookworm' },
  { name: 'Redis 8', packageName: 'redis-server', suite: 'trixie' },
  { name: 'Valkey 8', packageName: 'valkey-server', suite: 'trixie' },
]

/**
 * Downloads an engine without root and returns an environment in which it is found first: its folder is the first
 * on PATH, and REDIS_URL is not set.
 */
export async function engineEnvironment(engine: Engine): Promise<NodeJS.ProcessEnv> {
  const suite = await debianSuite(engine.name, engine.suite)
  const starter = await fetchAptServer({ packageName: engine.packageName, suite })
  const { REDIS_URL: _given, ...env } = process.env
  return { ...env, PATH: `${dirname(starter)}${delimiter}${env.PATH ?? ''}` }
}

/**
 * A Debian release to download from.
 * @param what the name of the download, for the error where this is not a Debian system
 */
export async function debianSuite(what: string, name: string): Promise<DebianSuite> {
  if (!findProgram(['apt-get'], process.env) || !existsSync(KEYRING)) {
    throw new Error(`expected a Debian system (apt-get and ${KEYRING}) to download ${what}`)
  }
  return { name, mirror: await debianMirror(), keyring: KEYRING }
}

/** The mirror that this machine already uses. */
async function debianMirror(): Promise<string> {
  const listed = await runCommand('apt-get', ['indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages'])
  const mirror = listed.split('\n').find((uri) => /\/debian\/?$/.test(uri))
  if (!mirror) throw new Error('expected a Debian archive among the package sources of apt-get; found none')
  return mirror
}
