import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'tsdown'
import { inject } from 'vitest'
import { COMPILED } from '../../workers/services/compile-programs.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** What a program of an older version is made of. */
const OF_IT = ['src', 'lua', 'package.json', 'tsconfig.json']

/** The programs of the torture on the library of another commit. */
export interface OlderVersion {
  readonly commit: string
  /** Where they are compiled to. */
  readonly folder: string
}

const git = (...args: string[]) =>
  execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()

/** The newest release, or before there is one, what the repository held a day before its last commit. */
function lastVersion(): string | undefined {
  try {
    return git('describe', '--tags', '--abbrev=0')
  } catch {
    const dayBefore = Number(git('log', '-1', '--format=%ct')) - 24 * 3600
    return git('rev-list', '-1', `--before=${dayBefore}`, 'HEAD') || undefined
  }
}

/**
 * Checks out another version into a folder of this run, and compiles the programs of this one with its library.
 * @param ref a commit, a tag or a branch. Default: the version before this one
 * @returns undefined without a repository, or where its history does not reach back so far
 */
export async function olderVersion(ref?: string): Promise<OlderVersion | undefined> {
  const commit = ref === undefined ? knownVersion() : git('rev-parse', '--short', ref)
  if (commit === undefined) return undefined
  const root = join(inject('runFolder'), 'older-sources')
  const folder = join(inject('runFolder'), 'older-programs')
  mkdirSync(root)
  const archive = execFileSync('git', ['archive', commit, ...OF_IT], { cwd: ROOT, maxBuffer: 2 ** 30 })
  execFileSync('tar', ['-x', '-C', root], { input: archive })
  symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'), 'junction')
  cpSync(join(ROOT, 'test', 'torture'), join(root, 'test', 'torture'), { recursive: true })
  await compile(root, folder)
  return { commit, folder }
}

/** File by file, and beside the Lua: a library of any version finds its scripts as it does in its check-out. */
async function compile(root: string, folder: string): Promise<void> {
  cpSync(join(root, 'lua'), join(folder, 'lua'), { recursive: true })
  await build({
    ...COMPILED,
    cwd: root,
    root,
    entry: ['test/torture/programs/*.ts'],
    outDir: folder,
    clean: false,
    unbundle: true,
  })
}

function knownVersion(): string | undefined {
  try {
    const found = lastVersion()
    return found && git('rev-parse', '--short', found)
  } catch {
    return undefined
  }
}
