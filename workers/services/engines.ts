import { existsSync } from 'node:fs'
import { delimiter, dirname } from 'node:path'
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
 * Downloads an engine without root and returns an environment in which it is the first Redis to be found: its folder
 * comes first on PATH, and no REDIS_URL stands in its way.
 */
export async function engineEnvironment(engine: Engine): Promise<NodeJS.ProcessEnv> {
  if (!findProgram(['apt-get'], process.env) || !existsSync(KEYRING)) {
    throw new Error(`expected a Debian system (apt-get and ${KEYRING}) to download ${engine.name}`)
  }
  const suite = { name: engine.suite, mirror: await debianMirror(), keyring: KEYRING }
  const starter = await fetchAptServer({ packageName: engine.packageName, suite })
  const { REDIS_URL: _given, ...env } = process.env
  return { ...env, PATH: `${dirname(starter)}${delimiter}${env.PATH ?? ''}` }
}

/** The mirror that this machine already uses. */
async function debianMirror(): Promise<string> {
  const listed = await runCommand('apt-get', ['indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages'])
  const mirror = listed.split('\n').find((uri) => /\/debian\/?$/.test(uri))
  if (!mirror) throw new Error('expected a Debian archive among the package sources of apt-get; found none')
  return mirror
}
