import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { defineConfig, type UserConfig } from 'tsdown'
import { build as buildPage } from 'vite'
import { embedded, isEmbedded } from './embedded-files.ts'

const ROOT = import.meta.dirname

/** The entries of each package by the names of their files in its `dist`; `exports` of its package.json names the same. */
const LIBRARY = {
  index: 'src/index.ts',
  egress: 'src/egress/index.ts',
  inspect: 'src/inspect/index.ts',
  internal: 'src/internal.ts',
  'internal-bullmq': 'src/internal-bullmq.ts',
  limits: 'src/limits/index.ts',
  sharding: 'src/sharding/index.ts',
  testing: 'src/testing/index.ts',
}
const PACKAGES = {
  dashboard: { index: 'src/index.ts', program: 'src/program/program.ts' },
  fetch: { index: 'src/index.ts' },
  gateway: {
    index: 'src/index.ts',
    client: 'src/client/index.ts',
    internal: 'src/internal.ts',
    program: 'src/program/program.ts',
  },
  metrics: { index: 'src/index.ts' },
  programs: { index: 'src/index.ts' },
  workers: {
    index: 'src/index.ts',
    'db-writes': 'src/db-writes/index.ts',
    email: 'src/email/index.ts',
    http: 'src/http/index.ts',
  },
}

interface Chunk {
  readonly type: string
  readonly fileName: string
  readonly isEntry: boolean
  readonly exports: readonly string[]
  code: string
}

interface Emitter {
  emitFile(file: { type: 'asset'; fileName: string; source: string }): void
}

/** V8 keeps the text of a module, and twice as large for a single character beyond Latin-1: all stand in literals. */
const ascii = {
  name: 'ascii',
  generateBundle(_options: unknown, bundle: Readonly<Record<string, unknown>>) {
    for (const chunk of Object.values(bundle) as Chunk[]) {
      if (chunk.type !== 'chunk' || /\.d\.c?ts$/.test(chunk.fileName)) continue
      chunk.code = chunk.code.replaceAll(/[^\0-\x7f]/g, (it) => `\\u${it.charCodeAt(0).toString(16).padStart(4, '0')}`)
    }
  },
}

/**
 * An ES module for each entry that has the names of its CommonJS module. There is one copy of the code and its state,
 * however a program loads it; Node knows BullMQ, too, as a CommonJS module alone.
 */
const esModules = {
  name: 'es-modules',
  generateBundle(this: Emitter, _options: unknown, bundle: Readonly<Record<string, unknown>>) {
    for (const { type, isEntry, fileName, exports } of Object.values(bundle) as Chunk[]) {
      if (type !== 'chunk' || !isEntry || !fileName.endsWith('.cjs')) continue
      const source = `export { ${exports.join(', ')} } from './${fileName}'\n`
      this.emitFile({ type: 'asset', fileName: fileName.replace(/cjs$/, 'js'), source })
    }
  },
}

const IMPORT = /^(?:import|export)\b(?! type)[^'";]*? from '([^']+)'/gm
const loading = new Map<string, boolean>()

/** Whether a module, or one that it imports, loads BullMQ or ioredis. */
function loadsQueues(id: string): boolean {
  const known = loading.get(id)
  if (known !== undefined) return known
  loading.set(id, false)
  const imported = Array.from(readFileSync(id, 'utf8').matchAll(IMPORT), ([, from]) => from as string)
  const loads = imported.some((from) =>
    from.startsWith('.') ? loadsQueues(join(dirname(id), from)) : ['bullmq', 'ioredis'].includes(from),
  )
  loading.set(id, loads)
  return loads
}

/** Loaded when a connection first goes by way of Sentinels. */
const LOADED_LATER = 'src/redis/sentinel-connector.ts'
const APART_FILES: ReadonlySet<string> = new Set(
  [...Object.values(LIBRARY), LOADED_LATER].map((file) => join(ROOT, file)),
)

const DECLARATIONS = /\.d\.c?ts$/

/** An entry that shares a chunk exports what others need of the chunk. */
function isShared(id: string): boolean {
  return id.startsWith(join(ROOT, 'src')) && !APART_FILES.has(id) && !DECLARATIONS.test(id) && !isEmbedded(id)
}

function isSharedDeclaration(id: string): boolean {
  const source = id.replace(DECLARATIONS, '.ts')
  return source !== id && source.startsWith(join(ROOT, 'src')) && !APART_FILES.has(source)
}

const common = {
  platform: 'node',
  target: 'node20.19',
  fixedExtension: false,
  clean: false,
  logLevel: 'warn',
  inputOptions: {
    checks: { pluginTimings: false, ineffectiveDynamicImport: false },
    // An entry exports nothing that only the other entries need.
    preserveEntrySignatures: 'strict',
    // Comments that name the source file of each part are 20 kB of the library.
    experimental: { attachDebugInfo: 'none' },
  },
  // The packages import each other by their names, and each finds the others where they are installed.
  deps: { neverBundle: [/^sluice($|\/|-)/] },
} as const satisfies UserConfig

/** The rooms that only some entries need; those of tools together. */
const APART = /src\/(?:(egress|inspect|sharding)|audit|testing)\//

function roomOf(id: string): string | null {
  const found = APART.exec(id)
  return found && (found[1] ?? 'tools')
}

/** Few, large chunks: an entry loads neither BullMQ nor a room that it could do without. */
const LIBRARY_CHUNKS = [
  {
    name: roomOf,
    test: (id: string) => isShared(id) && APART.test(id) && !loadsQueues(id),
  },
  { name: 'shared', test: (id: string) => isShared(id) && !loadsQueues(id) },
  { name: 'bullmq', test: (id: string) => isShared(id) && !APART.test(id) && loadsQueues(id) },
  { name: 'types.d', test: isSharedDeclaration },
]

/** Only programs that send scripts load their texts. */
const LUA_CHUNK = { name: 'lua-files', test: isEmbedded }

const DASHBOARD = join('packages', 'dashboard')

/**
 * Shorter code that stays readable: a stack trace names functions and lines. Node finds the names that a CommonJS module
 * exports by the form of its text: each stands in a statement of its own.
 */
const SHORTENED = { compress: { sequences: false, joinVars: false }, mangle: false, codegen: false }

/** Helpers of the bundler, which would be in an entry. */
const RUNTIME = { name: 'runtime', test: /rolldown\/runtime/ }

/** A package: CommonJS modules, ES modules that export the same, and declarations that serve both. */
function built(folder: string, entry: Readonly<Record<string, string>>, chunks: readonly object[] = []) {
  const isGrouped = chunks.length > 0
  const codeSplitting = isGrouped
    ? { groups: [LUA_CHUNK, ...chunks], includeDependenciesRecursively: false }
    : { groups: [RUNTIME] }
  return {
    ...common,
    inputOptions: { ...common.inputOptions, ...(isGrouped && { preserveEntrySignatures: 'allow-extension' }) },
    cwd: join(ROOT, folder),
    entry,
    format: 'cjs',
    clean: true,
    shims: true,
    dts: true,
    plugins: [embedded, ascii, esModules],
    outputOptions: { comments: { jsdoc: false }, codeSplitting, ...(isGrouped && { minify: SHORTENED }) },
    hooks: {
      'build:done': async ({ options }: { options: { outDir: string } }) => {
        for (const name of Object.keys(entry)) {
          await writeFile(join(options.outDir, `${name}.d.ts`), `export * from './${name}.cjs'\n`)
        }
        if (folder === DASHBOARD) await buildPage({ configFile: join(ROOT, DASHBOARD, 'vite.config.ts') })
      },
    },
  } as unknown as UserConfig
}

export default defineConfig([
  built('.', LIBRARY, LIBRARY_CHUNKS),
  ...Object.entries(PACKAGES).map(([name, entries]) => built(join('packages', name), entries)),
  {
    ...common,
    cwd: join(ROOT, 'packages', 'cli'),
    entry: { main: 'src/main.ts' },
    format: 'esm',
    dts: false,
    clean: true,
    plugins: [ascii],
    outputOptions: { codeSplitting: { groups: [{ name: 'cli', test: /src\/(?!main)[\w-]+\.ts$/ }] } },
  },
])
