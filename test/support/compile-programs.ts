import { fileURLToPath } from 'node:url'
import { build } from 'tsdown'
import { embedded } from '../../embedded-files.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Programs that tests start as separate processes. */
const PROGRAMS = ['workers/*.ts', 'src/cli/main.ts', 'test/*/**/programs/*.ts']

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
 * Compiles them into a folder, at the same paths as their sources in the project. If each process compiled its own,
 * that would take more CPU time than most tests do.
 */
export async function compilePrograms(folder: string): Promise<void> {
  await build({ ...COMPILED, cwd: ROOT, entry: PROGRAMS, outDir: folder, plugins: [embedded] })
}
