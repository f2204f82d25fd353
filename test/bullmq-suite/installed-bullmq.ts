import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative, resolve, sep } from 'node:path'
import type { Vite } from 'vitest/node'
import type { Mode } from './outcome.ts'

/** Where the published package keeps what BullMQ's repository keeps in `src`. */
export interface InstalledBullmq {
  version: string
  /** Compiled ES modules, one file per source file. */
  esmDir: string
  /** The whole `dist` folder: test fixtures reach into `dist/cjs`. */
  distDir: string
}

export function findInstalledBullmq(): InstalledBullmq {
  const require = createRequire(import.meta.url)
  const manifest = require.resolve('bullmq/package.json')
  const { version } = require(manifest) as { version: string }
  const distDir = join(dirname(manifest), 'dist')
  return { version, esmDir: join(distDir, 'esm'), distDir }
}

/** The compiled file of a module under `src`, or undefined where the package does not publish one. */
export function installedModule(esmDir: string, modulePath: string): string | undefined {
  const base = join(esmDir, modulePath)
  return [`${base}.js`, join(base, 'index.js')].find((file) => existsSync(file))
}

const REPLACED_WORKER = '\0shaped-worker:'
/** Modules through which the tests get `Worker`, relative to `src`. */
const WORKER_EXPORTERS = ['', 'classes', 'classes/worker']

export interface InstalledBullmqOptions extends InstalledBullmq {
  /** The staged checkout: `tests` are in it, `src` is not. */
  stageDir: string
  mode: Mode
  /** Module that makes our backend the default one. */
  shapedBackend: string
  /** Module that exports the `ShapedWorker` of the tests. */
  shapedWorker: string
}

/**
 * Vite plugin that gives BullMQ's tests the installed package: their `../src/...` imports become the compiled modules
 * of one copy of BullMQ, the same that `import 'bullmq'` of this project gets, so that there is one default backend
 * factory and one `Worker` class. In mode `worker` the tests, and only they, get ShapedWorker under the name `Worker`.
 */
export function installedBullmq(options: InstalledBullmqOptions): Vite.Plugin {
  const stagedSource = join(options.stageDir, 'src')
  const compiledWorker = join(options.esmDir, 'classes/worker.js')
  return {
    name: 'installed-bullmq',
    enforce: 'pre',
    resolveId(id, importer) {
      if (id === 'bullmq') return join(options.esmDir, 'index.js')
      if (!importer?.startsWith(options.stageDir) || !id.startsWith('.')) return undefined
      const target = resolve(dirname(importer), id)
      if (target !== stagedSource && !target.startsWith(stagedSource + sep)) return undefined
      const modulePath = relative(stagedSource, target).replaceAll(sep, '/')
      const file = installedModule(options.esmDir, modulePath)
      if (!file)
        throw new Error(`bullmq ${options.version} publishes no module for src/${modulePath} (wanted by ${importer})`)
      return options.mode === 'worker' && WORKER_EXPORTERS.includes(modulePath) ? REPLACED_WORKER + file : file
    },
    load(id) {
      if (!id.startsWith(REPLACED_WORKER)) return undefined
      const file = JSON.stringify(id.slice(REPLACED_WORKER.length))
      return `export * from ${file}\nexport { ShapedWorker as Worker } from ${JSON.stringify(options.shapedWorker)}\n`
    },
    transform(code, id) {
      if (options.mode !== 'stock' && id.startsWith(options.stageDir) && id.endsWith('.test.ts')) {
        // Not a setup file: that would load BullMQ before the mocks of a test are in place.
        return { code: `import ${JSON.stringify(options.shapedBackend)};${code}`, map: null }
      }
      if (id !== compiledWorker) return undefined
      // The worker looks for the script of its child processes beside itself. Node can run the CommonJS one only:
      // the ES modules of the package are written for bundlers.
      const filename = join(options.distDir, 'cjs/classes/worker.js')
      return { code: `const module = { filename: ${JSON.stringify(filename)} };${code}`, map: null }
    },
  }
}
