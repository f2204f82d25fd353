import { existsSync } from 'node:fs'
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { downloadPackages } from './apt-download.ts'
import { buildOnce } from './build-once.ts'
import { debianSuite } from './engines.ts'
import { runCommand } from './run-command.ts'

const CACHE = fileURLToPath(new URL('../../.cache/mta/', import.meta.url))
const SUITE = 'bookworm'

/** A mail server, by the Debian package that has it. */
export type MtaPackage = 'postfix' | 'exim4-daemon-light' | 'opensmtpd'

/** Users of the roots, with their groups of the same names and ids. */
export const MTA_USERS = {
  root: 0,
  postfix: 61_001,
  postdrop: 61_002,
  'Debian-exim': 61_003,
  opensmtpd: 61_004,
  opensmtpq: 61_005,
  nobody: 65_534,
}

/** Owners and modes of the folders that the set-up scripts of the packages make. */
const FOLDERS: Readonly<Record<MtaPackage, readonly [path: string, owner: keyof typeof MTA_USERS, mode: number][]>> = {
  postfix: [
    ['var/lib/postfix', 'postfix', 0o755],
    ...[
      'active',
      'bounce',
      'corrupt',
      'defer',
      'deferred',
      'flush',
      'hold',
      'incoming',
      'private',
      'saved',
      'trace',
    ].map((name) => [`var/spool/postfix/${name}`, 'postfix', 0o700] as const),
    ['var/spool/postfix/pid', 'root', 0o755],
    ['var/spool/postfix/public', 'postfix', 0o710],
    ['var/spool/postfix/maildrop', 'postfix', 0o730],
  ] as [string, keyof typeof MTA_USERS, number][],
  'exim4-daemon-light': [
    ['var/spool/exim4', 'Debian-exim', 0o750],
    ['var/log/exim4', 'Debian-exim', 0o750],
  ],
  opensmtpd: [
    ['var/lib/opensmtpd/empty', 'root', 0o711],
    ['var/spool/smtpd', 'root', 0o711],
  ],
}

/**
 * The folder of a root file system with a mail server and the libraries that it needs, made from Debian's packages
 * without changing those of the machine. It is downloaded with apt-get unless it already exists.
 *
 * @throws Error that says what is missing: root rights, which these servers need, or a Debian system
 */
export async function mtaRoot(packageName: MtaPackage, cache = CACHE): Promise<string> {
  if (process.getuid?.() !== 0) {
    throw new Error(
      `${packageName} has to be started by root (it runs in a chroot and changes users); run this as root`,
    )
  }
  const folder = join(cache, `${packageName}-${SUITE}-${process.arch}`)
  const root = join(folder, 'root')
  if (existsSync(root)) return root
  const suite = await debianSuite(packageName, SUITE)
  await buildOnce(folder, async (building) => {
    await downloadPackages([packageName], join(building, 'apt'), join(building, 'root'), suite)
    await furnish(join(building, 'root'), packageName)
  })
  return root
}

/** Makes what the set-up scripts of the packages and of a system would have made. */
async function furnish(root: string, packageName: MtaPackage): Promise<void> {
  for (const folder of ['dev', 'etc', 'tmp', 'run', 'var/log', 'var/run', 'var/tmp'])
    await mkdir(join(root, folder), { recursive: true })
  for (const folder of ['tmp', 'var/tmp']) await chmod(join(root, folder), 0o1777)
  for (const [name, minor] of [
    ['null', 3],
    ['zero', 5],
    ['random', 8],
    ['urandom', 9],
  ] as const) {
    await runCommand('mknod', ['-m', '666', join(root, 'dev', name), 'c', '1', `${minor}`])
  }
  const lines = Object.entries(MTA_USERS).map(([name, id]) => [
    `${name}:x:${id}:${id}::/:/usr/sbin/nologin`,
    `${name}:x:${id}:`,
  ])
  await writeFile(join(root, 'etc/passwd'), `${lines.map(([user]) => user).join('\n')}\n`)
  await writeFile(join(root, 'etc/group'), `${lines.map(([, group]) => group).join('\n')}\n`)
  await writeFile(join(root, 'etc/hosts'), '127.0.0.1 localhost\n')
  await writeFile(join(root, 'etc/nsswitch.conf'), 'passwd: files\ngroup: files\nhosts: files\nservices: files\n')
  for (const [path, owner, mode] of FOLDERS[packageName]) {
    await mkdir(join(root, path), { recursive: true })
    await chown(
      join(root, path),
      MTA_USERS[owner],
      MTA_USERS[path.endsWith('maildrop') || path.endsWith('public') ? 'postdrop' : owner],
    )
    await chmod(join(root, path), mode)
  }
}
