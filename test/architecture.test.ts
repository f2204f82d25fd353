import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The files that lie directly in src. All but the index know nothing of Sluice but each other, and any room may import them. */
const LEAVES = [
  ...['call-options', 'effect-id', 'errors', 'listening-server', 'max-timer', 'mode'],
  ...['plain-text', 'rate', 'secret-mask', 'version', 'waiting-line'],
]
/** The rooms of src, from the bottom up: each imports only leaves, itself and rooms further down. */
const ROOMS = [
  ...['redis', 'limits', 'shape', 'admission', 'departure', 'backend', 'feedback', 'reports', 'queue', 'worker'],
  // `src/index.ts`, the public surface of the rooms above, stands here: what follows builds on them.
  ...[
    'testing',
    'egress',
    'client',
    'acl',
    'simulate',
    'inspect',
    'sharding',
    'audit',
    'http',
    'dashboard',
    'doctor',
    'metrics',
  ],
  ...['programs', 'cli'],
]
/** The library itself: what a job meets on its way. */
const CORE = ROOMS.slice(0, ROOMS.indexOf('worker') + 1)
/** Files in rooms that import no more than leaves do: nothing but leaves and each other. */
const PURE = [
  ...[
    'redis/clock',
    'redis/keys',
    'shape/reserved-places',
    'shape/durability',
    'shape/groups',
    'shape/shape',
    'shape/stored',
  ],
  ...['limits/definition', 'limits/limit-keys', 'limits/queue-limits', 'limits/time-zone'],
]
/** The way down. Each leads to the next; as there are no cycles, none of them leads back up. */
const DOWNWARDS = ['index', 'worker/worker', 'backend/factory', 'backend/backend', 'redis/scripts']
/** Only what stands between BullMQ and its users knows BullMQ. */
const KNOW_BULLMQ = [
  ...['add-call', 'flows', 'job-options'].map((name) => `admission/${name}`),
  ...['backend', 'connections', 'dead-letters', 'factory', 'grouped-job'].map((name) => `backend/${name}`),
  'departure/reply',
  ...['flow-producer', 'options', 'queue', 'queue-events', 'unavailable'].map((name) => `queue/${name}`),
  ...['bullmq-scripts', 'commands'].map((name) => `redis/${name}`),
  'reports/telemetry',
  'sharding/adds',
  'sharding/queue',
  ...['attempts', 'deadline', 'events', 'options', 'shaped-job', 'worker'].map((name) => `worker/${name}`),
  ...[
    'http/gateway/result-events',
    'programs/db-writes/processor',
    'programs/email/processor',
    'programs/unrecoverable',
    'programs/worker-program',
  ],
]
/** The package's entries. */
const INDEXES = [
  'index',
  'client/index',
  'egress/index',
  'egress/fetch/index',
  'http/index',
  'limits/index',
  'inspect/index',
  'metrics/index',
  'dashboard/index',
  'sharding/index',
].map(inSrc)
/** What the programs and the tests' helpers may take of the library, besides its index. */
const ARITHMETIC = [
  'errors',
  'call-options',
  'redis/deadlines',
  'redis/unusable',
  'rate',
  'shape/shape',
  'mode',
  'effect-id',
  'listening-server',
  'plain-text',
  'secret-mask',
  // The index of http knows the gateway, and that BullMQ: the dashboard needs neither.
  'http/adapters/fastify',
  'http/auth/only-from',
  'http/auth/token-file',
  'http/auth/tokens',
  'http/limits/address',
  'http/responses/problem',
  'egress/fetch/target',
  'acl/roles',
  'acl/rights',
].map(inSrc)

/** Fewer lines than these are no file of their own, unless several files need them. */
const SMALL_LINES = 25
/** The build makes this package part of ours. */
const BUNDLED = 'lru-cache'
/** The build replaces these modules. */
const REPLACED = ['redis/lua-files', 'dashboard/web-files'].map(inSrc)
/** Here each thing of a kind has a file, however small, and one file lists them. */
const ONE_EACH = /^src\/(cli\/commands|doctor\/checks|egress\/profiles)\//

const sources = new Map(
  ['src', 'workers', 'lua'].flatMap((folder) =>
    (readdirSync(join(ROOT, folder), { recursive: true }) as string[])
      .map((file) => join(folder, file).replaceAll('\\', '/'))
      .filter((file) => /\.(ts|mjs|lua)$/.test(file))
      .map((file) => [file, readFileSync(join(ROOT, file), 'utf8')] as const),
  ),
)
const imports = new Map([...sources].map(([file, source]) => [file, importsOf(file, source)]))

function inSrc(name: string): string {
  return `src/${name}.ts`
}

/** The files and packages that a file imports; types count. */
function importsOf(file: string, source: string): string[] {
  if (file.endsWith('.lua')) return []
  return ts.preProcessFile(source).importedFiles.map(({ fileName }) => named(file, fileName))
}

/** What a file loads at once: neither types nor what it imports when it is needed. */
function loadedBy(file: string): string[] {
  const { statements } = ts.createSourceFile(file, sources.get(file) ?? '', ts.ScriptTarget.Latest)
  return statements.flatMap((statement) => {
    const isType = ts.isImportDeclaration(statement)
      ? statement.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword
      : !ts.isExportDeclaration(statement) || statement.isTypeOnly
    const from = (statement as ts.ImportDeclaration | ts.ExportDeclaration).moduleSpecifier
    return from && !isType ? [named(file, (from as ts.StringLiteral).text)] : []
  })
}

function named(file: string, imported: string): string {
  return imported.startsWith('.') ? join(dirname(file), imported).replaceAll('\\', '/') : imported
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

function leadsTo(from: string, to: string, seen = new Set<string>()): boolean {
  if (from === to) return true
  if (seen.has(from)) return false
  seen.add(from)
  return (imports.get(from) ?? []).some((imported) => leadsTo(imported, to, seen))
}

/** The packages that a file needs, itself or through what it imports; types count, Node's own modules do not. */
function packagesOf(file: string): string[] {
  const files = new Set([file])
  for (const one of files) for (const imported of imports.get(one) ?? []) if (isLocal(imported)) files.add(imported)
  const packages = [...files].flatMap((one) => (imports.get(one) ?? []).filter((imported) => !isLocal(imported)))
  return [...new Set(packages)].filter((name) => !name.startsWith('node:')).toSorted()
}

/** The room of a file of src, '' for one that lies directly in src. */
function roomOf(file: string): string {
  return /^src\/([^/]+)\//.exec(file)?.[1] ?? ''
}

const isCore = (file: string) => dirname(file) === 'src' || CORE.includes(roomOf(file))
const isLocal = (imported: string) => imports.has(imported)

test('imports never run in a circle', () => {
  expect([...imports.keys()].map((file) => cycle(file)).filter(Boolean)).toEqual([])
})

test('files lie in rooms; few lie directly in src', () => {
  const files = [...imports.keys()].filter((file) => file.startsWith('src/'))
  expect(files.filter((file) => dirname(file) === 'src').toSorted()).toEqual([...LEAVES, 'index'].map(inSrc).toSorted())
  expect(LEAVES.length).toBeLessThan(12)
  expect([...new Set(files.map(roomOf))].filter(Boolean).toSorted()).toEqual(ROOMS.toSorted())
})

test('the way down is index, worker, backend, scripts', () => {
  for (const [i, name] of DOWNWARDS.slice(1).entries()) {
    expect(leadsTo(inSrc(DOWNWARDS[i] as string), inSrc(name)), `${DOWNWARDS[i]} to ${name}`).toBe(true)
    expect(leadsTo(inSrc(name), inSrc(DOWNWARDS[i] as string)), `${name} to ${DOWNWARDS[i]}`).toBe(false)
  }
})

test('each room says what it knows at the top of one of its files', () => {
  const saying = [...sources].flatMap(([file, source]) =>
    source.startsWith(`// ${roomOf(file)}/: `) ? [[roomOf(file), /^((?:\/\/.*\n)+)/.exec(source)?.[1] ?? '']] : [],
  )
  expect(saying.map(([room]) => room).toSorted()).toEqual(ROOMS.toSorted())
  expect(saying.filter(([, comment]) => !comment?.replaceAll('\n// ', ' ').includes('It must not know'))).toEqual([])
})

test('a room imports only what lies below it', () => {
  const height = (file: string) => (file === 'src/index.ts' ? CORE.length - 0.5 : ROOMS.indexOf(roomOf(file)))
  expect(
    offences(
      (file) => file.startsWith('src/'),
      (imported, file) => isLocal(imported) && height(imported) > height(file),
    ),
  ).toEqual([])
})

test.each([
  'inspect/index',
  'metrics/index',
  'dashboard/index',
  'cli/open-cli',
  'cli/commands/status',
  'cli/commands/top',
  'cli/commands/metrics',
  'programs/dashboard/program',
])('%s looks without BullMQ, which takes a while to load and much memory', (name) => {
  const files = new Set([inSrc(name)])
  for (const file of files) for (const loaded of loadedBy(file)) if (isLocal(loaded)) files.add(loaded)
  expect([...files].filter((file) => loadedBy(file).includes('bullmq'))).toEqual([])
})

test('limits know no queue', () => {
  expect(leadsTo('src/limits/index.ts', inSrc('backend/backend'))).toBe(false)
  expect(leadsTo('src/limits/index.ts', inSrc('queue/queue'))).toBe(false)
  expect(leadsTo('src/limits/index.ts', inSrc('shape/shape'))).toBe(false)
})

test.each([
  ['client', ['structured-headers']],
  ['egress', ['structured-headers']],
  ['egress/fetch', ['undici']],
])('sluice/%s needs only %j: it runs without BullMQ and Redis', (entry, packages) => {
  expect(packagesOf(inSrc(`${entry}/index`)).filter((name) => name !== BUNDLED)).toEqual(packages)
})

test('no file of the client or of egress, but for fetch, reaches undici', () => {
  const files = [...imports.keys()].filter((file) => /^src\/(client|egress\/(?!fetch\/))/.test(file))
  expect(files.length).toBeGreaterThan(60)
  expect(files.filter((file) => packagesOf(file).includes('undici'))).toEqual([])
})

test('the library knows feedback, and nothing of the downstreams that give it', () => {
  expect(offences(isCore, (imported) => imported.startsWith('src/egress/'))).toEqual([])
  expect(imports.get(inSrc('feedback/feedback'))).toEqual([])
})

test('leaves import nothing but leaves', () => {
  const leaves = [...LEAVES, ...PURE].map(inSrc)
  expect(leaves.filter((file) => !imports.has(file))).toEqual([])
  expect(
    offences(
      (file) => leaves.includes(file),
      (imported) => isLocal(imported) && !leaves.includes(imported),
    ),
  ).toEqual([])
})

test('the library knows neither its programs nor its helpers for tests', () => {
  expect(offences(isCore, (imported) => /^src\/(programs|testing)\//.test(imported))).toEqual([])
  expect(
    offences(
      (file) => isCore(file) || file.startsWith('src/testing/'),
      (imported) => imported === 'src/index.ts',
    ),
  ).toEqual([])
})

test('programs and helpers for tests take the index of the library, or its arithmetic', () => {
  const beside = (folder: string) => (imported: string) =>
    isLocal(imported) && !imported.startsWith(folder) && !INDEXES.includes(imported) && !ARITHMETIC.includes(imported)
  expect(offences((file) => file.startsWith('src/programs/'), beside('src/programs/'))).toEqual([])
  expect(offences((file) => file.startsWith('src/testing/'), beside('src/testing/'))).toEqual([])
})

test('workers take only programs, the entries of the library and of the dashboard, and the ids of its effects', () => {
  const allowed = /^(src\/programs\/|src\/(index|effect-id|dashboard\/index)\.ts$|workers\/)/
  expect(
    offences(
      (file) => file.startsWith('workers/'),
      (imported) => isLocal(imported) && !allowed.test(imported),
    ),
  ).toEqual([])
})

test('http stands before the library, which knows nothing of it', () => {
  expect(
    offences(
      (file) => file.startsWith('src/') && !/^src\/(dashboard|http|programs)\//.test(file),
      (imported) => imported.startsWith('src/http/'),
    ),
  ).toEqual([])
})

test('only their adapter knows a framework', () => {
  expect(
    offences(
      (file) => file.startsWith('src/http/') && !file.startsWith('src/http/adapters/'),
      (imported) => /^(fastify|fastify-plugin|express)$/.test(imported),
    ),
  ).toEqual([])
})

test('only the files that have to know BullMQ import it', () => {
  const users = [...imports].filter(([file, imported]) => file.startsWith('src/') && imported.includes('bullmq'))
  expect(users.map(([file]) => file).toSorted()).toEqual(KNOW_BULLMQ.map(inSrc).toSorted())
})

test('no import reaches into BullMQ past its index', () => {
  expect(
    offences(
      () => true,
      (imported) => imported.startsWith('bullmq/'),
    ),
  ).toEqual([])
})

test('only redis/lua-files.ts reads the texts of lua/', () => {
  const readers = [...sources].filter(
    ([file, source]) => file.startsWith('src/') && /['"`][^'"`]*\blua\/|\.lua[`'"]/.test(code(source)),
  )
  expect(readers.map(([file]) => file)).toEqual([inSrc('redis/lua-files')])
})

test('a small file that one other file imports is part of that file', () => {
  const importers = (file: string) => [...imports].filter(([, imported]) => imported.includes(file)).length
  const small = [...sources].filter(
    ([file, source]) => file.startsWith('src/') && source.split('\n').length <= SMALL_LINES && importers(file) === 1,
  )
  expect(
    small.map(([file]) => file).filter((file) => ![...INDEXES, ...REPLACED].includes(file) && !ONE_EACH.test(file)),
  ).toEqual([])
})

test('what a module exports is named: no export *', () => {
  expect([...sources].filter(([, source]) => /^export \*/m.test(source)).map(([file]) => file)).toEqual([])
})

/** The source without its comments. */
function code(source: string): string {
  return source.replaceAll(/\/\*.*?\*\/|^\s*\/\/.*$/gms, '')
}
