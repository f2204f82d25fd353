import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { join, posix } from 'node:path'
import ts from 'typescript'
import { installedModule } from './installed-bullmq.ts'

/** A test file of the checkout; one with a reason is left out. */
export interface SuiteFile {
  /** Path inside `tests`, with forward slashes. */
  file: string
  skipReason?: string
}

/** A checkout of BullMQ's repository, as far as the suite needs it. */
export interface Checkout {
  dir: string
  version: string
  files: SuiteFile[]
  /** Packages that the tests import and this project does not have, with the versions the checkout asks for. */
  dependencies: Record<string, string>
}

const OTHER_STORES: readonly (readonly [pattern: RegExp, reason: string])[] = [
  [/^postgres\/|^postgres-/, 'tests the PostgreSQL backend'],
  [/^bun-/, 'needs the Bun runtime'],
  [/^(node-redis|adapter-conformance)\./, 'tests the node-redis client'],
  [/^valkey-glide/, 'tests the valkey-glide client'],
]

interface Manifest {
  name?: string
  version?: string
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
}

function readManifest(dir: string): Manifest {
  return JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8')) as Manifest
}

function listFiles(dir: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: 'utf8' })
    .map((file) => file.replaceAll('\\', '/'))
    .sort()
}

function importsOf(file: string): string[] {
  return ts.preProcessFile(readFileSync(file, 'utf8'), true, true).importedFiles.map(({ fileName }) => fileName)
}

/** The package of an import that is neither relative nor part of Node. */
function packageOf(specifier: string): string | undefined {
  if (specifier.startsWith('.') || isBuiltin(specifier)) return undefined
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')
}

/** Path below `src` that a relative import of a test file names. */
function sourceModuleOf(file: string, specifier: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined
  const target = posix.join('tests', posix.dirname(file), specifier)
  return target === 'src' ? '' : target.startsWith('src/') ? target.slice('src/'.length) : undefined
}

/**
 * Reads which tests a checkout has, which of them cannot run here and why, and which packages they need.
 * @throws {Error} if the folder is not a checkout of BullMQ's repository
 */
export function readCheckout(dir: string, esmDir: string, ownPackages: ReadonlySet<string>): Checkout {
  if (!existsSync(join(dir, 'package.json')) || !existsSync(join(dir, 'tests'))) {
    throw new Error(`--src expects a checkout of BullMQ's repository (package.json and tests/), got "${dir}"`)
  }
  const manifest = readManifest(dir)
  if (manifest.name !== 'bullmq') {
    throw new Error(`--src expects a checkout of BullMQ's repository, got one of "${manifest.name}" in "${dir}"`)
  }
  const offered = { ...manifest.devDependencies, ...manifest.dependencies }
  const dependencies: Record<string, string> = {}

  const skipReason = (file: string): string | undefined => {
    const otherStore = OTHER_STORES.find(([pattern]) => pattern.test(file))
    if (otherStore) return otherStore[1]
    const imports = importsOf(join(dir, 'tests', file))
    for (const specifier of imports) {
      const modulePath = sourceModuleOf(file, specifier)
      if (modulePath !== undefined && !installedModule(esmDir, modulePath)) {
        return `tests src/${modulePath}, which the published package does not contain`
      }
    }
    const missing = imports.flatMap((specifier) => packageOf(specifier) ?? []).filter((name) => !ownPackages.has(name))
    const unknown = missing.find((name) => !offered[name])
    if (unknown) return `imports ${unknown}, which the checkout's package.json does not name`
    for (const name of missing) dependencies[name] = offered[name] as string
    return undefined
  }

  const files = listFiles(join(dir, 'tests'))
    .filter((file) => file.endsWith('.test.ts'))
    .map((file): SuiteFile => {
      const reason = skipReason(file)
      return reason ? { file, skipReason: reason } : { file }
    })
  return { dir, version: manifest.version ?? 'unknown', files, dependencies }
}

/** Packages that this project declares, and which the tests therefore get in the version installed here. */
export function declaredPackages(projectDir: string): Set<string> {
  const manifest = readManifest(projectDir)
  return new Set([...Object.keys(manifest.dependencies ?? {}), ...Object.keys(manifest.devDependencies ?? {})])
}
