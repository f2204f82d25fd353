import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The rooms of src, from the bottom up: each imports only files that lie directly in src, itself and rooms further down. */
const ROOMS = [
  ...['redis', 'limits', 'shape', 'admission', 'departure', 'backend', 'feedback', 'reports', 'queue', 'worker'],
  // `src/index.ts`, the public surface of the rooms above, stands here: what follows builds on them.
  ...['testing', 'egress', 'inspect', 'sharding', 'audit'],
]
/** The library itself: what a job meets on its way. */
const CORE = ROOMS.slice(0, ROOMS.indexOf('worker') + 1)
/** What stands between BullMQ and its users. */
const KNOW_BULLMQ = ['admission', 'backend', 'departure', 'queue', 'redis', 'reports', 'sharding', 'worker']
const BULLMQ_PACKAGES = ['gateway', 'workers']
/** What looks at queues starts without BullMQ, which takes a while to load and much memory. */
const LOOKING = [
  ...['src/inspect/index.ts', 'src/internal.ts', 'packages/metrics/src/index.ts', 'packages/dashboard/src/index.ts'],
  ...['packages/dashboard/src/program/program.ts', 'packages/programs/src/index.ts', 'packages/cli/src/open-cli.ts'],
  ...['status', 'top', 'metrics'].map((command) => `packages/cli/src/commands/${command}.ts`),
]

interface Manifest {
  readonly name: string
  readonly exports: Readonly<Record<string, string | { readonly import: { readonly default: string } }>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
}

const PACKAGES = readdirSync(join(ROOT, 'packages'))
const manifests = new Map(
  ['.', ...PACKAGES.map((name) => `packages/${name}`)].map((folder) => [
    folder,
    JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8')) as Manifest,
  ]),
)
/** The source of each entry, by the name that it is imported by. */
const { paths } = JSON.parse(readFileSync(join(ROOT, 'tsconfig.json'), 'utf8')).compilerOptions as {
  paths: Record<string, [string]>
}
const entries = new Map(Object.entries(paths).map(([name, [file]]) => [name, file.slice(2)]))

const sources = new Map(
  ['src', 'workers', ...PACKAGES.map((name) => `packages/${name}/src`)].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .map((file) => join(folder, file).replaceAll('\\', '/'))
      .filter((file) => /\.(ts|mjs)$/.test(file))
      .map((file) => [file, readFileSync(join(ROOT, file), 'utf8')] as const),
  ),
)
/** What each file imports, as written; types count. */
const written = new Map(
  [...sources].map(([file, source]) => [file, ts.preProcessFile(source).importedFiles.map(({ fileName }) => fileName)]),
)
/** The files and packages that it imports: an entry of ours counts as its file. */
const imports = new Map([...written].map(([file, names]) => [file, names.map((name) => resolved(file, name))]))

function resolved(file: string, name: string): string {
  return name.startsWith('.') ? join(dirname(file), name).replaceAll('\\', '/') : (entries.get(name) ?? name)
}

/** What a file loads at once: neither types nor what it imports when it is needed. */
function loadedBy(file: string): string[] {
  const { statements } = ts.createSourceFile(file, sources.get(file) ?? '', ts.ScriptTarget.Latest)
  return statements.flatMap((statement) => {
    const isType = ts.isImportDeclaration(statement)
      ? statement.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword
      : !ts.isExportDeclaration(statement) || statement.isTypeOnly
    const from = (statement as ts.ImportDeclaration | ts.ExportDeclaration).moduleSpecifier
    return from && !isType ? [resolved(file, (from as ts.StringLiteral).text)] : []
  })
}

/** Every file and every import of it that a rule forbids. */
function offences(among: (file: string) => boolean, forbids: (imported: string, file: string) => boolean): string[] {
  return [...imports].flatMap(([file, imported]) =>
    among(file) ? imported.filter((one) => forbids(one, file)).map((one) => `${file} imports ${one}`) : [],
  )
}

/** The first way from a file back to itself. */
function cycle(file: string, path: readonly string[] = []): string[] | undefined {
  if (path.includes(file)) return [...path.slice(path.indexOf(file)), file]
  if (done.has(file)) return undefined
  done.add(file)
  for (const imported of imports.get(file) ?? []) {
    const found = imports.has(imported) ? cycle(imported, [...path, file]) : undefined
    if (found) return found
  }
  return undefined
}
const done = new Set<string>()

/** A file, and all that it imports itself or through others. */
function reached(file: string, by: (file: string) => readonly string[]): string[] {
  const files = new Set([file])
  for (const one of files) for (const imported of by(one)) files.add(imported)
  return [...files]
}

/** The room of a file of src, '' for one that lies directly in src. */
function roomOf(file: string): string {
  return /^src\/([^/]+)\//.exec(file)?.[1] ?? ''
}

/** The folder of the package that a file belongs to. */
function packageOf(file: string): string {
  return /^packages\/[^/]+/.exec(file)?.[0] ?? '.'
}

/** `ajv` of `ajv/dist/2020.js`, `@fastify/cookie` of itself. */
function nameOf(imported: string): string {
  return imported
    .split('/')
    .slice(0, imported.startsWith('@') ? 2 : 1)
    .join('/')
}

test('imports never run in a circle', () => {
  expect([...imports.keys()].map((file) => cycle(file)).filter(Boolean)).toEqual([])
})

test('a room imports only what lies below it', () => {
  expect([...new Set([...sources.keys()].map(roomOf))].filter(Boolean).toSorted()).toEqual(ROOMS.toSorted())
  const height = (file: string) => {
    if (file === 'src/index.ts') return CORE.length - 0.5
    return file.startsWith('src/internal') ? ROOMS.length : ROOMS.indexOf(roomOf(file))
  }
  expect(
    offences(
      (file) => file.startsWith('src/'),
      (imported, file) => imported.startsWith('src/') && height(imported) > height(file),
    ),
  ).toEqual([])
})

test('the library knows feedback, and nothing of the downstreams that give it', () => {
  expect(
    offences(
      (file) => CORE.includes(roomOf(file)),
      (imported) => imported.startsWith('src/egress/'),
    ),
  ).toEqual([])
  expect(
    reached('src/egress/index.ts', (file) => imports.get(file) ?? []).filter(
      (one) => !sources.has(one) && !one.startsWith('node:'),
    ),
  ).toEqual(['structured-headers'])
})

test('only what stands between BullMQ and its users imports it, and never past its index', () => {
  const users = [...imports].flatMap(([file, imported]) => (imported.includes('bullmq') ? [file] : []))
  const rooms = users.filter((file) => file.startsWith('src/')).map(roomOf)
  expect([...new Set(rooms)].toSorted()).toEqual(KNOW_BULLMQ)
  const packages = users.filter((file) => file.startsWith('packages/')).map((file) => file.split('/')[1])
  expect([...new Set(packages)].toSorted()).toEqual(BULLMQ_PACKAGES)
  const past = (imported: string) => imported.startsWith('bullmq/')
  expect(offences(() => true, past)).toEqual([])
})

test.each(LOOKING)('%s looks without BullMQ', (file) => {
  expect(reached(file, loadedBy)).not.toContain('bullmq')
})

test('a package depends on what it imports, on nothing else, and reaches into no other', () => {
  for (const [folder, { dependencies, peerDependencies }] of manifests) {
    const files = [...written].filter(([file]) => packageOf(file) === folder && !file.startsWith('workers/'))
    const names = files.flatMap(([, imported]) => imported.filter((name) => !/^(node:|\.)/.test(name)).map(nameOf))
    const used = [...new Set(names)]
    const stated = Object.keys({ ...dependencies, ...peerDependencies })
    expect(used.filter((name) => !stated.includes(name))).toEqual([])
    // What only loads others, or is found by its path, is not imported.
    expect(stated.filter((name) => !used.includes(name) && !['ioredis', 'bullmq'].includes(name))).toEqual([])
    const foreign = (imported: string) => sources.has(imported) && packageOf(imported) !== folder
    const within = new Set(files.map(([file]) => file))
    const named = new Set(entries.values())
    expect(
      offences(
        (file) => within.has(file),
        (imported) => foreign(imported) && !named.has(imported),
      ),
    ).toEqual([])
  }
})

test('each entry of a package has a source, and the other way round', () => {
  const exported = [...manifests.values()].flatMap(({ name, exports }) =>
    Object.keys(exports)
      .filter((path) => path !== './package.json')
      .map((path) => name + path.slice(1)),
  )
  expect(exported.toSorted()).toEqual([...entries.keys()].toSorted())
  for (const file of entries.values()) expect(existsSync(join(ROOT, file)), file).toBe(true)
})

test.each(['sluice/internal', 'sluice/internal/bullmq', 'sluice-gateway/internal'])(
  '%s has what other packages take of it, and nothing else',
  (entry) => {
    const source = ts.createSourceFile('', sources.get(entries.get(entry) as string) as string, ts.ScriptTarget.Latest)
    const names = source.statements.flatMap((statement) =>
      ts.isExportDeclaration(statement) && statement.exportClause && ts.isNamedExports(statement.exportClause)
        ? statement.exportClause.elements.map(({ name }) => name.text)
        : [],
    )
    const taken = [...sources].flatMap(([, text]) =>
      [...text.matchAll(/\{([^{}]*)\}\s*(?:from|=\s*await import\()\s*'([^']+)'/g)].flatMap(([, list, from]) =>
        from === entry
          ? (list as string).split(',').map((one) => one.replace(/^\s*type\s|\s+as\s.*$|:.*$/g, '').trim())
          : [],
      ),
    )
    const others = [...sources.values()].join('\n')
    const loaded = (name: string) => new RegExp(`import\\('${entry}'\\)\\)\\.${name}\\b`).test(others)
    expect(names.filter((name) => !taken.includes(name) && !loaded(name))).toEqual([])
  },
)

test('only redis/lua-files.ts reads the texts of lua/', () => {
  const readers = [...sources].filter(
    ([file, source]) => file.startsWith('src/') && /['"`][^'"`]*\blua\/|\.lua[`'"]/.test(code(source)),
  )
  expect(readers.map(([file]) => file)).toEqual(['src/redis/lua-files.ts'])
})

test('what a module exports is named: no export *', () => {
  expect([...sources].filter(([, source]) => /^export \*/m.test(source)).map(([file]) => file)).toEqual([])
})

/** The source without its comments. */
function code(source: string): string {
  return source.replaceAll(/\/\*.*?\*\/|^\s*\/\/.*$/gms, '')
}
