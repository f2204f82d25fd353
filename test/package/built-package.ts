import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, inject } from 'vitest'
import { runCommand } from '../../workers/services/run-command.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** What a check-out has and a package does not need to be built. */
const LEFT_OUT = /^(?:node_modules|coverage|site|\.(?!gitignore$).*|.*\.tgz)$/

const BUILD_TIMEOUT_MS = 600_000
const LOOK_MS = 100

/** A copy of this check-out with `dist` built, so that no run of tests disturbs another or the developer's own build. */
export interface BuiltPackage {
  /** The copy, which other files use too: programs in it that import `sluice` get its `dist`. */
  readonly folder: string
  /** A folder of the file's own, for projects that install the package: no node_modules above it. */
  readonly projects: string
  /** Runs npm's pack for the library and the packages around it. @returns the paths of the tarballs by their names */
  pack(): Promise<ReadonlyMap<string, string>>
}

/** Builds the package before the tests of a file, unless another file of this run has. */
export function useBuiltPackage(): BuiltPackage {
  let folder = ''
  let projects = ''
  beforeAll(async () => {
    projects = await mkdtemp(join(tmpdir(), 'sluice-package-'))
    folder = await builtInThisRun()
  }, BUILD_TIMEOUT_MS)
  afterAll(() => rm(projects, { recursive: true, force: true }))
  return {
    get folder() {
      return folder
    },
    get projects() {
      return projects
    },
    pack: async () => {
      const all = ['--workspaces', '--include-workspace-root']
      const output = await npm(folder, ['pack', ...all, '--ignore-scripts', '--json', '--pack-destination', projects])
      const packed = JSON.parse(output) as { name: string; filename: string }[]
      return new Map(packed.map(({ name, filename }) => [name, join(projects, filename)]))
    },
  }
}

/** Builds the copy, or waits for the file that does, which may run in another process. */
async function builtInThisRun(): Promise<string> {
  const top = join(inject('runFolder'), 'package')
  const [folder, failure] = [join(top, 'built'), join(top, 'failure')]
  const isFirst = await mkdir(top).then(
    () => true,
    () => false,
  )
  if (isFirst) {
    await build(join(top, 'building')).catch((error: Error) => writeFile(failure, error.message))
    if (!existsSync(failure)) await rename(join(top, 'building'), folder)
  }
  while (!existsSync(folder) && !existsSync(failure)) await delay(LOOK_MS)
  if (existsSync(failure)) throw new Error(`the package could not be built: ${await readFile(failure, 'utf8')}`)
  return folder
}

async function build(folder: string): Promise<void> {
  // In CI, the check-out has been built for all who need it.
  const isBuilt = process.env.PACKAGE_IS_BUILT === '1'
  for (const name of await readdir(ROOT)) {
    if (LEFT_OUT.test(name)) continue
    const filter = (file: string) => !/[\\/]node_modules$/.test(file) && (isBuilt || basename(file) !== 'dist')
    await cp(join(ROOT, name), join(folder, name), { recursive: true, filter })
  }
  await linkPackages(folder)
  if (isBuilt) return
  // Not by npm, which would run it in the check-out that node_modules belongs to.
  const tsdown = join(ROOT, 'node_modules', 'tsdown', 'dist', 'run.mjs')
  await runCommand(process.execPath, [tsdown, '--log-level', 'error'], { cwd: folder, timeoutMs: PATIENCE_MS })
}

/** The packages of others are those of the check-out; ours are those of the copy. */
async function linkPackages(folder: string): Promise<void> {
  const [from, to] = [join(ROOT, 'node_modules'), join(folder, 'node_modules')]
  await mkdir(to)
  for (const name of await readdir(from)) {
    // Relative: the folder gets another name once all is built.
    const own = name === 'sluice' ? '..' : join('..', 'packages', name.replace('sluice-', ''))
    await symlink(/^sluice($|-)/.test(name) ? own : join(from, name), join(to, name), 'dir')
  }
}

/** At the lowest priority, as in CI, npm and the compiler may have to wait for long. */
export const PATIENCE_MS = 600_000

/** Runs npm without asking the network for what its cache has. */
export function npm(cwd: string, args: readonly string[]): Promise<string> {
  const options = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
  return runCommand('npm', [...args, ...options], { cwd, timeoutMs: PATIENCE_MS })
}

/** Runs the newest TypeScript compiler. @throws with everything that it found */
export async function compile(cwd: string, args: readonly string[]): Promise<void> {
  const tsc = join(ROOT, 'node_modules', 'typescript7', 'bin', 'tsc')
  await runTool(cwd, [tsc, '--singleThreaded', '--pretty', 'false', ...args])
}

/** Runs a program of Node and returns all that it printed. @throws with all of it */
export async function runTool(cwd: string, args: readonly string[], env = process.env): Promise<string> {
  try {
    return await runCommand(process.execPath, args, { cwd, env, withStderr: true, timeoutMs: PATIENCE_MS })
  } catch (error) {
    const { stdout = '', stderr = '' } = (error as Error).cause as { stdout?: string; stderr?: string }
    throw new Error(`node ${args.join(' ')}:\n${stdout + stderr || (error as Error).message}`, { cause: error })
  }
}

/** Where the type definitions of Node are, for projects that do not install them. */
export const TYPE_ROOTS: string = join(ROOT, 'node_modules', '@types')
