import { fileURLToPath } from 'node:url'
import { build } from 'tsdown'
import { embedded } from '../../embedded-files.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** What tests start as processes of their own. */
const PROGRAMS = ['workers/*.ts', 'src/cli/main.ts', 'test/*/**/programs/*.ts']

/**
 * Compiles them into a folder, each to where its source is in the project: in a process that loads TypeScript, that
 * takes more CPU time than most tests do.
 */
export async function compilePrograms(folder: string): Promise<void> {
  await build({
    config: false,
    cwd: ROOT,
    entry: PROGRAMS,
    outDir: folder,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    dts: false,
    sourcemap: true,
    logLevel: 'warn',
    deps: { skipNodeModulesBundle: true },
    inputOptions: { checks: { pluginTimings: false, ineffectiveDynamicImport: false } },
    plugins: [embedded],
  })
}
