import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Checkout } from './checkout.ts'

/** A copy of the checkout's tests that can be run, without its sources. */
export interface Stage {
  dir: string
  /** BullMQ's own vitest setup file, where the checkout has one. */
  setupFiles: string[]
  remove(): void
}

async function installDependencies(dir: string, dependencies: Record<string, string>): Promise<void> {
  const manifestFile = join(dir, 'package.json')
  // No "type": the fixtures of BullMQ's tests are CommonJS files named .js, and this folder lies inside an ESM package.
  const manifest = `${JSON.stringify({ private: true, dependencies }, null, 2)}\n`
  const installed = join(dir, 'node_modules/.package-lock.json')
  if (existsSync(installed) && existsSync(manifestFile) && readFileSync(manifestFile, 'utf8') === manifest) return
  const list = Object.entries(dependencies).map(([name, version]) => `${name}@${version}`)
  console.log(`Installing what BullMQ's tests need into ${dir}: ${list.join(', ')}`)
  writeFileSync(manifestFile, manifest)
  const args = ['install', '--prefix', dir, '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error']
  await promisify(execFile)('npm', args, { cwd: dir, shell: process.platform === 'win32' })
}

/**
 * Copies the tests of a checkout to a fresh folder under `cacheDir`, with the packages they need above it and the
 * installed package's `dist` beside them, where the fixtures look for a build. The checkout is not touched.
 */
export async function createStage(checkout: Checkout, distDir: string, cacheDir: string): Promise<Stage> {
  mkdirSync(cacheDir, { recursive: true })
  if (Object.keys(checkout.dependencies).length > 0) await installDependencies(cacheDir, checkout.dependencies)
  const dir = mkdtempSync(join(cacheDir, 'stage-'))
  cpSync(join(checkout.dir, 'tests'), join(dir, 'tests'), { recursive: true })
  cpSync(join(checkout.dir, 'tsconfig.json'), join(dir, 'tsconfig.json'))
  writeFileSync(join(dir, 'package.json'), '{ "private": true }\n')
  symlinkSync(distDir, join(dir, 'dist'), 'junction')
  const setupFiles: string[] = []
  if (existsSync(join(checkout.dir, 'vitest.setup.ts'))) {
    cpSync(join(checkout.dir, 'vitest.setup.ts'), join(dir, 'vitest.setup.ts'))
    setupFiles.push(join(dir, 'vitest.setup.ts'))
  }
  return { dir, setupFiles, remove: () => rmSync(dir, { recursive: true, force: true }) }
}
