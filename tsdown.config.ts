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
  code: string
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

/** What an entry shares with others is in chunks of groups; the bundler leaves an empty chunk where that is all of it. */
const withoutEmptyChunks = {
  name: 'without-empty-chunks',
  generateBundle(_options: unknown, bundle: Record<string, unknown>) {
    const chunks = Object.values(bundle) as Chunk[]
    for (const { fileName } of chunks.filter(({ code }) => code?.trim() === 'export {};')) {
      delete bundle[fileName]
      for (const chunk of chunks) if (chunk.code) chunk.code = chunk.code.replace(`import "./${fileName}";\n`, '')
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
  },
  // The packages import each other by their names, and each finds the others where they are installed.
  deps: { neverBundle: [/^sluice($|\/|-)/] },
} as const satisfies UserConfig

/** The rooms that only some entries need; those of tools together. */
const APART = /src\/(?:(egress|inspect|sharding)|acl|audit|testing)\//

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

/** The ES modules take the texts from the file of the CommonJS modules: they are a third of the package. */
const luaBeside = {
  name: 'lua-beside',
  resolveId(source: string) {
    return source.endsWith('/lua-files.ts') ? { id: './lua-files.cjs', external: true } : undefined
  },
}
const LUA_CHUNK = { name: 'lua-files', test: isEmbedded }

const DASHBOARD = join('packages', 'dashboard')

/** Helpers of the bundler, which would be in an entry. */
const RUNTIME = { name: 'runtime', test: /rolldown\/runtime/ }

/** A package as ES modules and as CommonJS, whose declarations serve both. */
function built(folder: string, entry: Readonly<Record<string, string>>, chunks: readonly object[] = []) {
  const outputOptions = { comments: { jsdoc: false } }
  const isGrouped = chunks.length > 0
  const inputOptions = { ...common.inputOptions, ...(isGrouped && { preserveEntrySignatures: 'allow-extension' }) }
  const shared = { ...common, inputOptions, cwd: join(ROOT, folder), entry }
  const codeSplitting = (...apart: readonly object[]) =>
    isGrouped ? { groups: [...apart, ...chunks], includeDependenciesRecursively: false } : { groups: [RUNTIME] }
  return [
    {
      ...shared,
      format: 'esm',
      dts: false,
      clean: true,
      plugins: [luaBeside, embedded, ascii, withoutEmptyChunks],
      outputOptions: { ...outputOptions, codeSplitting: codeSplitting() },
    },
    {
      ...shared,
      format: 'cjs',
      shims: true,
      dts: true,
      plugins: [embedded, ascii],
      outputOptions: {
        ...outputOptions,
        codeSplitting: codeSplitting(LUA_CHUNK),
        chunkFileNames: ({ name }: { name: string }) => (name === LUA_CHUNK.name ? '[name].cjs' : '[name]-[hash].cjs'),
      },
      hooks: {
        'build:done': async ({ options }: { options: { outDir: string } }) => {
          for (const name of Object.keys(entry)) {
            await writeFile(join(options.outDir, `${name}.d.ts`), `export * from './${name}.cjs'\n`)
          }
          if (folder === DASHBOARD) await buildPage({ configFile: join(ROOT, DASHBOARD, 'vite.config.ts') })
        },
      },
    },
  ] as unknown as UserConfig[]
}

export default defineConfig([
  ...built('.', LIBRARY, LIBRARY_CHUNKS),
  ...Object.entries(PACKAGES).flatMap(([name, entries]) => built(join('packages', name), entries)),
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
