import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type DebianSuite, downloadPackages } from './apt-download.ts'
import { buildOnce } from './build-once.ts'
import { runCommand } from './run-command.ts'

const CACHE = fileURLToPath(new URL('../../.cache/redis/', import.meta.url))

/** Starters that were tried in this process: it takes 50 ms of CPU time, and tests start hundreds of servers. */
const tried = new Set<string>()

/** A Redis-compatible server of a Debian release. */
export interface AptServer {
  packageName: 'redis-server' | 'valkey-server'
  /** Default: the release that is installed here. */
  suite?: DebianSuite
}

/**
 * The path of a starter script for the server, downloaded with apt into the project's cache folder unless it already
 * exists. Several processes may ask at the same time.
 */
export async function fetchAptServer(server: AptServer, cache = CACHE): Promise<string> {
  const folder = join(cache, await folderName(server))
  const starter = join(folder, 'bin', server.packageName)
  if (existsSync(starter)) {
    if (tried.has(starter) || (await runs(starter))) {
      tried.add(starter)
      return starter
    }
    // A system library that it needs has been removed since.
    await rm(folder, { recursive: true, force: true })
  }
  await buildOnce(folder, (building) => build(server, building))
  return starter
}

async function build(server: AptServer, building: string): Promise<void> {
  const root = join(building, 'root')
  await downloadPackages([server.packageName], join(building, 'apt'), root, server.suite)
  const starter = join(building, 'bin', server.packageName)
  await mkdir(dirname(starter))
  await writeFile(starter, await starterScript(server, root))
  await chmod(starter, 0o755)
  await runCommand(starter, ['--version'])
}

/** A script rather than a command line with variables: it moves with its folder, and `exec` keeps the process id. */
async function starterScript(server: AptServer, root: string): Promise<string> {
  const folders = await libraryFolders(root)
  const paths = folders.map((folder) => `$here/root/${folder}`).join(':')
  const program = `"$here/root/usr/bin/${server.packageName}"`
  const head = '#!/bin/sh\nhere=$(cd "$' + '{0%/*}/.." && pwd)\n'
  if (!server.suite) return `${head}LD_LIBRARY_PATH="${paths}" exec ${program} "$@"\n`
  // The C library of another release works only with the loader it came with.
  const loader = await findLoader(root)
  return `${head}exec "$here/root/${loader}" --library-path "${paths}" ${program} "$@"\n`
}

/** The folders below `root`, relative to it, that hold shared libraries. */
async function libraryFolders(root: string): Promise<string[]> {
  const files = await readdir(root, { recursive: true })
  const folders = files.filter((file) => /\.so(\.\d+)*$/.test(file)).map((file) => dirname(file))
  return [...new Set(folders)].filter((folder) => /(^|\/)lib\/[^/]+-linux-gnu[^/]*$/.test(folder)).sort()
}

async function findLoader(root: string): Promise<string> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true })
  // A regular file: the well-known path to it is an absolute link in some releases, to the loader of this machine.
  const loader = entries.find((entry) => entry.isFile() && /^ld-linux-[^/]+\.so\.\d$/.test(entry.name))
  if (loader === undefined) throw new Error(`expected a dynamic loader (ld-linux-*.so) under ${root}, found none`)
  return relative(root, join(loader.parentPath, loader.name))
}

async function folderName({ packageName, suite }: AptServer): Promise<string> {
  return `${packageName}-${suite?.name ?? (await releaseName())}-${process.arch}`
}

async function releaseName(): Promise<string> {
  const text = await readFile('/etc/os-release', 'utf8').catch(() => '')
  const field = (name: string) => new RegExp(`^${name}="?([\\w.-]+)`, 'm').exec(text)?.[1] ?? 'unknown'
  return `${field('ID')}-${field('VERSION_ID')}`
}

async function runs(starter: string): Promise<boolean> {
  return runCommand(starter, ['--version']).then(
    () => true,
    () => false,
  )
}
