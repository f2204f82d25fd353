import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { runCommand } from './run-command.ts'

/** A Debian release other than the installed one, with its mirror and key ring. */
export interface DebianSuite {
  name: string
  mirror: string
  keyring: string
}

/**
 * Downloads Debian packages with the libraries apt's own resolver says are missing and unpacks them under `root`,
 * without root rights and without touching the machine's apt state: package lists, cache and status are private folders
 * inside `workDir`. With `suite`, the packages come from that release and nothing counts as installed, so that the C
 * library comes along too. Offline it fails at once.
 */
export async function downloadPackages(
  packageNames: readonly string[],
  workDir: string,
  root: string,
  suite?: DebianSuite,
): Promise<void> {
  const apt = await privateApt(workDir, suite)
  // A third-party source that does not answer is not fatal: what counts is whether the package is found.
  const updateError = await apt('update').then(
    () => undefined,
    (error: Error) => error,
  )
  const plan = await apt('--simulate', '--no-install-recommends', 'install', ...packageNames).catch((error: Error) => {
    throw updateError ?? error
  })
  const names = packagesToUnpack(plan)
  if (names.length === 0) {
    throw new Error(`apt-get has nothing to download for ${packageNames.join(' ')}: ${plan.trim()}`)
  }
  const archives = join(workDir, 'archives')
  await mkdir(archives)
  await apt.in(archives)('download', ...names)
  await mkdir(root, { recursive: true })
  for (const archive of await readdir(archives)) await runCommand('dpkg', ['-x', join(archives, archive), root])
  await removeManuals(join(root, 'usr', 'share'))
  await rm(workDir, { recursive: true, force: true })
}

/** Packages of a simulated installation that hold a program, font or shared library: no tools for set-up scripts. */
export function packagesToUnpack(plan: string): string[] {
  const names = plan.split('\n').flatMap((line) => /^Inst (\S+)/.exec(line)?.[1] ?? [])
  return names.filter((name) =>
    /^(lib|zlib|lua-|redis|valkey|chromium|fonts-|postfix|exim4|opensmtpd|netbase)/.test(name),
  )
}

/** Manuals, translations, icons: all but fonts. */
async function removeManuals(share: string): Promise<void> {
  const entries = await readdir(share).catch(() => [])
  for (const entry of entries) if (entry !== 'fonts') await rm(join(share, entry), { recursive: true, force: true })
}

type Apt = ((...args: string[]) => Promise<string>) & { in(cwd: string): (...args: string[]) => Promise<string> }

async function privateApt(workDir: string, suite: DebianSuite | undefined): Promise<Apt> {
  const lists = join(workDir, 'lists')
  const cache = join(workDir, 'cache')
  await mkdir(join(lists, 'partial'), { recursive: true })
  await mkdir(join(cache, 'archives', 'partial'), { recursive: true })
  const settings = [
    `Dir::State::lists=${lists}`,
    `Dir::Cache=${cache}`,
    'Debug::NoLocking=1',
    'Acquire::Languages=none',
    'Acquire::Retries=0',
    // As root, apt would download as its own user, which has no access to these folders.
    'APT::Sandbox::User=root',
    ...(suite ? await suiteSettings(workDir, suite) : ['Dir::State::status=/var/lib/dpkg/status']),
  ]
  const options = ['-qq', ...settings.flatMap((setting) => ['-o', setting])]
  const env = { ...process.env, LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive' }
  const runIn =
    (cwd: string) =>
    (...args: string[]) =>
      runCommand('apt-get', [...options, ...args], { cwd, env })
  return Object.assign(runIn(workDir), { in: runIn })
}

async function suiteSettings(workDir: string, suite: DebianSuite): Promise<string[]> {
  const status = join(workDir, 'status')
  const sources = join(workDir, 'sources.list')
  await writeFile(status, '')
  await writeFile(sources, `deb [signed-by=${suite.keyring}] ${suite.mirror} ${suite.name} main\n`)
  return [
    `Dir::State::status=${status}`,
    `Dir::Etc::sourcelist=${sources}`,
    'Dir::Etc::sourceparts=-',
    'Dir::Etc::preferences=-',
    'Dir::Etc::preferencesparts=-',
  ]
}
