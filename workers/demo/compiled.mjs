// Plain JavaScript that imports only Node's modules: what has been compiled starts without a compiler.
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const projectRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))))

/** What the compiled programs are made of. The packages are known by npm's record of them. */
const FILES = ['embedded-files.ts', 'node_modules/.package-lock.json', 'tsconfig.json']
const FOLDERS = ['lua', 'packages', 'src', 'workers']
/** What lies in packages and no program is made of. */
const LEFT_OUT = ['dist', 'node_modules', 'test']

/** The demonstration, and all that it starts as processes. */
const PROGRAMS = ['workers/{email,db-writes}.ts', 'workers/demo/{main,producer,limited-email,limited-db-writes}.ts']

/** Another demonstration, of the sources as they were, may still be running. */
const KEPT_MS = 24 * 3600 * 1000

/**
 * The files of a folder, without those that editors and systems hide there: a lock may be a link to nowhere.
 * @param {string} root
 * @param {string} folder
 * @returns {string[]}
 */
function filesIn(root, folder) {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .filter(
      (entry) =>
        !entry.name.startsWith('.') && !LEFT_OUT.includes(entry.name) && (entry.isFile() || entry.isDirectory()),
    )
    .map((entry) => ({ path: join(folder, entry.name), isFolder: entry.isDirectory() }))
    .toSorted((one, other) => (one.path < other.path ? -1 : 1))
    .flatMap(({ path, isFolder }) => (isFolder ? filesIn(root, path) : [path]))
}

/**
 * A name for the sources and the packages as they are. The place is part of it, because what is compiled names it.
 * @param {string} root the folder of package.json
 */
function versionOf(root) {
  const hash = createHash('sha256').update(root)
  for (const file of [...FILES, ...FOLDERS.flatMap((folder) => filesIn(root, folder))]) {
    hash.update(`\0${file}\0`).update(readFileSync(join(root, file)))
  }
  return hash.digest('hex').slice(0, 20)
}

/** @param {string} cache */
function removeOutdated(cache) {
  if (!existsSync(cache)) return
  for (const folder of readdirSync(cache).map((name) => join(cache, name))) {
    // Another process may have removed or renamed it since.
    const builtMs = statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()
    if (Date.now() - builtMs > KEPT_MS) rmSync(folder, { recursive: true, force: true })
  }
}

/** @param {string} folder */
async function compile(folder) {
  const { register } = await import('tsx/esm/api')
  const unregister = register()
  const { buildOnce } = await import('../services/build-once.ts')
  const { compilePrograms } = await import('../services/compile-programs.ts')
  await unregister()
  await buildOnce(folder, (building) => compilePrograms(building, PROGRAMS, 'inside'))
}

/**
 * Compiles the demonstration, unless that has been done since the last change.
 * @param {string} root the folder of package.json
 * @param {(folder: string) => Promise<void>} make compiles it into a folder
 * @returns {Promise<string>} the folder, in which programs have the paths of their sources
 */
export async function compiledDemo(root = projectRoot, make = compile) {
  const cache = join(root, '.cache', 'demo')
  const folder = join(cache, versionOf(root))
  if (existsSync(folder)) return folder
  removeOutdated(cache)
  await make(folder)
  return folder
}
