import { symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
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
  sourcemap: true,
  logLevel: 'warn',
  deps: { skipNodeModulesBundle: true },
  inputOptions: { checks: { pluginTimings: false, ineffectiveDynamicImport: false } },
} as const

/**
 * Compiles TypeScript programs into a folder, at the same paths as their sources in the project. If each process
 * compiled its own, that would take more CPU time than most of them use.
 * @param folder within a folder that {@link linkPackages} has prepared
 * @param entry their paths in the project, or patterns
 */
export async function compilePrograms(folder: string, entry: readonly string[]): Promise<void> {
  await build({ ...COMPILED, cwd: ROOT, root: ROOT, entry: [...entry], outDir: folder, plugins: [embedded] })
}

/** Lets programs that are compiled to somewhere below `folder` find the project's packages. */
export async function linkPackages(folder: string): Promise<void> {
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
}
