import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** Files that know nothing of Sluice but each other. */
const LEAVES = [
  ...[
    'errors',
    'keys',
    'max-timer',
    'rate',
    'reserved-places',
    'shape',
    'shape-mode',
    'stored-shape',
    'version',
    'job-times',
    'effect-id',
    'redis-clock',
  ],
  ...['limits/definition', 'limits/limit-keys', 'limits/queue-limits', 'limits/time-zone'],
]
/** The way down. Each leads to the next; as there are no cycles, none of them leads back up. */
const DOWNWARDS = ['index', 'worker', 'backend-factory', 'backend', 'scripts']
/** Only what stands between BullMQ and its users knows BullMQ. */
const KNOW_BULLMQ = [
  ...[
    'add-call',
    'attempts',
    'backend',
    'backend-factory',
    'bullmq-scripts',
    'cron-clock',
    'dead-letters',
    'deadline',
    'departure-reply',
  ],
  'flow-admission',
  ...[
    'flow-producer',
    'job-options',
    'job-terms',
    'marker-wait',
    'queue',
    'queue-options',
    'redis-commands',
    'shaped-job',
    'shaped-telemetry',
    'unavailable',
    'worker',
    'worker-events',
    'worker-options',
  ],
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
].map(inSrc)
/** What the programs and the tests' helpers may take of the library, besides its index. */
const ARITHMETIC = [
  'errors',
  'rate',
  'shape',
  'shape-mode',
  'effect-id',
  'listening-server',
  'plain-text',
  'secret-mask',
  // The index of http knows the gateway, and that BullMQ: the dashboard needs neither.
  'http/adapters/fastify',
  'http/auth/only-from',
  'http/auth/token-file',
  'http/auth/tokens',
].map(inSrc)

const IMPORT = /^(?:import|export)\b[^'";]*?\bfrom '([^']+)'|^import '([^']+)'|\bimport\('([^']+)'\)/gm

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
  return [...source.matchAll(IMPORT)].map(([, one, two, three]) => {
    const name = (one ?? two ?? three) as string
    return name.startsWith('.') ? join(dirname(file), name).replaceAll('\\', '/') : name
  })
}

/** What a file loads at once: neither types nor what it imports when it is needed. */
function loadedBy(file: string): string[] {
  const source = (sources.get(file) ?? '').replaceAll(/^(?:import|export) type\b.*$|\bimport\(/gm, '')
  return importsOf(file, source)
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

const isCore = (file: string) => dirname(file) === 'src'
const isLocal = (imported: string) => imports.has(imported)

test('imports never run in a circle', () => {
  expect([...imports.keys()].map((file) => cycle(file)).filter(Boolean)).toEqual([])
})

test('the way down is index, worker, backend, scripts', () => {
  for (const [i, name] of DOWNWARDS.slice(1).entries()) {
    expect(leadsTo(inSrc(DOWNWARDS[i] as string), inSrc(name)), `${DOWNWARDS[i]} to ${name}`).toBe(true)
    expect(leadsTo(inSrc(name), inSrc(DOWNWARDS[i] as string)), `${name} to ${DOWNWARDS[i]}`).toBe(false)
  }
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
  expect(leadsTo('src/limits/index.ts', inSrc('backend'))).toBe(false)
  expect(leadsTo('src/limits/index.ts', inSrc('queue'))).toBe(false)
})

test.each([
  ['client', ['structured-headers']],
  ['egress', ['structured-headers']],
  ['egress/fetch', ['undici']],
])('sluice/%s needs only %j: it runs without BullMQ and Redis', (entry, packages) => {
  expect(packagesOf(inSrc(`${entry}/index`))).toEqual(packages)
})

test('no file of the client or of egress, but for fetch, reaches undici', () => {
  const files = [...imports.keys()].filter((file) => /^src\/(client|egress\/(?!fetch\/))/.test(file))
  expect(files.length).toBeGreaterThan(60)
  expect(files.filter((file) => packagesOf(file).includes('undici'))).toEqual([])
})

test('queues and workers know feedback, and nothing of whose it is', () => {
  expect(
    offences(
      (file) => isCore(file) || file.startsWith('src/feedback/'),
      (imported) => imported.startsWith('src/egress/') && imported !== 'src/egress/feedback.ts',
    ),
  ).toEqual([])
  expect(imports.get('src/egress/feedback.ts')).toEqual([])
})

test('leaves import nothing but leaves', () => {
  const leaves = LEAVES.map(inSrc)
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

test('workers take only programs, the index of the library, and the ids of its effects', () => {
  const allowed = /^(src\/programs\/|src\/(index|effect-id)\.ts$|workers\/)/
  expect(
    offences(
      (file) => file.startsWith('workers/'),
      (imported) => isLocal(imported) && !allowed.test(imported),
    ),
  ).toEqual([])
})

test('the front door stands before the library, which knows nothing of it', () => {
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

test('only lua-files.ts reads the texts of lua/', () => {
  const readers = [...sources].filter(
    ([file, source]) => file.startsWith('src/') && /['"`][^'"`]*\blua\/|\.lua[`'"]/.test(code(source)),
  )
  expect(readers.map(([file]) => file)).toEqual([inSrc('lua-files')])
})

test('what a module exports is named: no export *', () => {
  expect([...sources].filter(([, source]) => /^export \*/m.test(source)).map(([file]) => file)).toEqual([])
})

/** The source without its comments. */
function code(source: string): string {
  return source.replaceAll(/\/\*.*?\*\/|^\s*\/\/.*$/gms, '')
}
