import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import license from 'rollup-plugin-license'
import { defineConfig } from 'tsdown'
import { embedded, isEmbedded } from './embedded-files.ts'
import { missingPackages } from './missing-packages.ts'

const ROOT = import.meta.dirname

/** The entries of the package by the names of their files in `dist`; `exports` of package.json names the same. */
const ENTRIES = {
  index: 'src/index.ts',
  client: 'src/client/index.ts',
  dashboard: 'src/dashboard/index.ts',
  egress: 'src/egress/index.ts',
  'egress-fetch': 'src/egress/fetch/index.ts',
  http: 'src/http/index.ts',
  inspect: 'src/inspect/index.ts',
  limits: 'src/limits/index.ts',
  metrics: 'src/metrics/index.ts',
  sharding: 'src/sharding/index.ts',
  testing: 'src/testing/index.ts',
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

/** The licences of the packages whose code becomes part of ours ask to be passed on. */
const licenses = license({ thirdParty: { output: { file: join(ROOT, 'dist', 'THIRD-PARTY-LICENSES.txt') } } })

/** The packages of the command line, with their dependencies. The library has no dependencies but its peers. */
const OF_TERMINAL = /node_modules\/(?!lru-cache)/

const IMPORT = /^(?:import|export)\b(?! type)[^'";]*? from '([^']+)'/gm
const packages = new Map<string, Set<string>>()

/** The packages that a module and all that it imports load. */
function packagesOf(id: string): ReadonlySet<string> {
  const known = packages.get(id)
  if (known) return known
  const found = new Set<string>()
  packages.set(id, found)
  for (const [, from] of readFileSync(id, 'utf8').matchAll(IMPORT) as Iterable<[string, string]>) {
    if (from.startsWith('.')) for (const name of packagesOf(join(dirname(id), from))) found.add(name)
    else if (!from.startsWith('node:')) found.add(from)
  }
  return found
}

/** The rooms of the library itself, from which all entries take some modules. */
const LIBRARY = /src\/(?:admission|backend|departure|limits|queue|redis|reports|shape)\//

const ENTRY_FILES: ReadonlySet<string> = new Set(Object.values(ENTRIES).map((file) => join(ROOT, file)))

/** Declarations are divided by entries alone. An entry that shares a chunk exports what others need of the chunk. */
function isOfLibrary(id: string): boolean {
  return LIBRARY.test(id) && !ENTRY_FILES.has(id) && !id.endsWith('.d.ts') && !isEmbedded(id)
}

/** What the programs share. */
const PROGRAM = /src\/programs\/[\w-]+\.ts$/

/** Fewer, larger chunks, none of which loads a package that an entry could do without. */
const groups = [
  { name: 'terminal', test: OF_TERMINAL },
  { name: 'leaves', test: /src\/(?!index)[\w-]+\.ts$/ },
  { name: 'cli', test: /src\/cli\/(?!main)[\w-]+\.ts$/ },
  { name: 'programs', test: (id: string) => PROGRAM.test(id) && !packagesOf(id).has('bullmq') },
  { name: 'worker-programs', test: (id: string) => PROGRAM.test(id) && packagesOf(id).has('bullmq') },
  { name: 'shared', test: (id: string) => isOfLibrary(id) && packagesOf(id).size === 0 },
  { name: 'bullmq', test: (id: string) => isOfLibrary(id) && packagesOf(id).size > 0 },
]

const common = {
  platform: 'node',
  target: 'node20.19',
  fixedExtension: false,
  clean: false,
  logLevel: 'warn',
  deps: { onlyBundle: false },
  inputOptions: {
    checks: { pluginTimings: false, ineffectiveDynamicImport: false },
    preserveEntrySignatures: 'allow-extension',
  },
  outputOptions: { comments: { jsdoc: false }, codeSplitting: { groups, includeDependenciesRecursively: false } },
} as const

export default defineConfig([
  {
    ...common,
    entry: { ...ENTRIES, cli: 'src/cli/main.ts' },
    format: 'esm',
    dts: false,
    clean: true,
    plugins: [embedded, ascii, withoutEmptyChunks, licenses],
  },
  { ...common, entry: ENTRIES, format: 'esm', dts: { emitDtsOnly: true }, plugins: [embedded] },
  {
    ...common,
    entry: ENTRIES,
    format: 'cjs',
    shims: true,
    dts: true,
    plugins: [embedded, ascii, missingPackages(packagesOf)],
  },
])
