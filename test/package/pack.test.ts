import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import { runCommand } from '../../workers/services/run-command.ts'
import { compile, npm, PATIENCE_MS, runTool, TYPE_ROOTS, useBuiltPackage } from './built-package.ts'
import { codeBlocks, README, ROOT } from './code-blocks.ts'

const CONSUMER = fileURLToPath(new URL('consumer', import.meta.url))

/** With the strictest option about optional fields, which the others leave off: declarations have to suit both. */
const NODENEXT = ['--module', 'nodenext', '--moduleResolution', 'nodenext', '--exactOptionalPropertyTypes']
const NODE_TYPES = ['--types', 'node', '--typeRoots', TYPE_ROOTS]
/** Checks all declarations but those of the language and of browsers, which come with the compiler. */
const STRICT = [
  ...['--noEmit', '--strict', '--target', 'es2022'],
  ...['--skipLibCheck', 'false', '--skipDefaultLibCheck', 'true'],
]
const BUNDLER = ['--module', 'preserve', '--moduleResolution', 'bundler']

/** The newest and the oldest of the peers that the package allows, and how projects with them compile. */
const ALL_PROJECTS = [
  { bullmq: '6.7.0', ioredis: '6.0.0', resolutions: [NODENEXT, BUNDLER] },
  { bullmq: '6.5.1', ioredis: '5.4.0', resolutions: [NODENEXT] },
]
/** The oldest take a minute more: `npm run test:peers`. */
const PROJECTS = process.env.ALL_PEERS ? ALL_PROJECTS : ALL_PROJECTS.slice(0, 1)

const built = useBuiltPackage()
let redis: RedisService
let tarballs: ReadonlyMap<string, string>
/** Makes one project after the other, while tests of those before it run: npm waits and computes in turn. */
let made: Promise<unknown> = Promise.resolve()
const projects: (() => void)[] = []

beforeAll(async () => {
  redis = await startRedis({ ignoreGiven: true })
  tarballs = await built.pack()
  for (const make of projects) make()
})
afterAll(async () => {
  await made
  await redis?.stop()
})

/** A new project beside the packages, with nothing in it but some of ours and those of others. */
async function makeProject(name: string, ours: readonly string[], others: readonly string[]): Promise<string> {
  const folder = join(built.projects, name)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name, private: true }))
  await npm(folder, ['install', '--ignore-scripts', ...ours.map((one) => tarballs.get(one) as string), ...others])
  await cp(CONSUMER, folder, { recursive: true })
  return folder
}

/** A project for the tests of a block. */
function useProject(
  name: string,
  ours: () => readonly string[],
  others: readonly string[],
): { readonly folder: string } {
  let making: Promise<string>
  let folder = ''
  projects.push(() => {
    making = made.then(() => makeProject(name, ours(), others))
    made = making.catch(() => {})
  })
  beforeAll(async () => {
    folder = await making
  }, PATIENCE_MS)
  return {
    get folder() {
      return folder
    },
  }
}

async function run(folder: string, program: string): Promise<unknown> {
  const env = { PATH: process.env.PATH, REDIS_URL: redis.url }
  const output = await runCommand(process.execPath, [program], { cwd: folder, env, withStderr: true })
  return JSON.parse(output)
}

const FOLDERS: readonly string[] = ['.', ...readdirSync(join(ROOT, 'packages')).map((name) => join('packages', name))]
/** Of the library alone: what a program that only adds jobs installs. */
const MOST_FILES = 52
const MOST_BYTES = 1_200_000

test.each(FOLDERS)('the package of %s holds what it needs at run time, and nothing else', async (folder) => {
  const { name, bin, exports } = JSON.parse(await readFile(join(ROOT, folder, 'package.json'), 'utf8'))
  const lines = (await runCommand('tar', ['-tvzf', tarballs.get(name) as string])).trim().split('\n')
  const files = lines.map((line) => line.split(' package/')[1] as string)
  const top = new Set(files.map((file) => file.split('/')[0]))
  const own = name === 'sluice' ? ['CHANGELOG.md', 'docs'] : []
  expect([...top].toSorted()).toEqual([...own, 'LICENSE', 'README.md', 'dist', 'package.json'].toSorted())
  expect(files.filter((file) => file.startsWith('docs/') && !file.endsWith('.acl'))).toEqual([])
  const entries = JSON.stringify([bin ?? {}, exports]).matchAll(/"(?:\.\/)?(dist\/[^"]+)"/g)
  for (const [, file] of entries) expect(files).toContain(file)
  if (name !== 'sluice') return
  expect(files.length).toBeLessThanOrEqual(MOST_FILES)
  const bytes = lines.map((line) => Number(/\s(\d+)\s\d{4}-/.exec(line)?.[1]))
  expect(bytes.reduce((sum, one) => sum + one)).toBeLessThanOrEqual(MOST_BYTES)
})

/** The packages that a file of `dist` loads at once, by itself or through other files. */
function packagesLoadedBy(file: string): string[] {
  const files = new Set([file])
  const packages = new Set<string>()
  for (const name of files) {
    const text = readFileSync(join(built.folder, 'dist', name), 'utf8')
    for (const [, esm, cjs] of text.matchAll(
      /^(?:import|export)\b[^"']*?["']([^"']+)["'];?$|^(?:const|let) .*?\brequire\("([^"]+)"\)/gm,
    )) {
      const loaded = (esm ?? cjs) as string
      if (loaded.startsWith('./')) files.add(loaded.slice(2))
      else if (!loaded.startsWith('node:')) packages.add(loaded)
    }
  }
  return [...packages].sort()
}

test.each(['js', 'cjs'])('the chunks of an entry load no package that the entry could do without: .%s', (ending) => {
  for (const entry of ['egress', 'internal']) {
    expect(packagesLoadedBy(`${entry}.${ending}`)).toEqual(['structured-headers'])
  }
  expect(packagesLoadedBy(`inspect.${ending}`)).not.toContain('bullmq')
  // BullMQ loads ioredis to connect.
  expect(packagesLoadedBy(`index.${ending}`)).toEqual(['bullmq'])
})

/** The names that a file of `dist` exports. */
function exportedBy(file: string): string[] {
  const text = readFileSync(file, 'utf8')
  const names = file.endsWith('.cjs')
    ? text.matchAll(/^exports\.([\w$]+) = |^Object\.defineProperty\(exports, "([\w$]+)"/gm)
    : (/^export \{ (.*) \} from /m.exec(text)?.[1] ?? '').matchAll(/([\w$]+)(?:,|$)/g)
  return [...new Set([...names].map(([, name, defined]) => (name ?? defined) as string))].sort()
}

test('an entry exports what its source does, from its ES module and its CommonJS module', async () => {
  const entries = FOLDERS.flatMap((folder) => {
    const { name, exports = {} } = JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8'))
    return (Object.entries(exports) as [string, { require?: { default: string } }][]).flatMap(([path, { require }]) =>
      require ? [[`${name}${path.slice(1)}`, join(built.folder, folder, require.default)] as const] : [],
    )
  })
  expect(entries.length).toBeGreaterThan(15)
  for (const [name, file] of entries) {
    const names = Object.keys(await import(name)).sort()
    expect(exportedBy(file), name).toEqual(names)
    expect(exportedBy(file.replace(/cjs$/, 'js')), name).toEqual(names)
  }
})

describe.each(PROJECTS)('a project that has only bullmq $bullmq and ioredis $ioredis', (peers) => {
  const { bullmq, ioredis } = peers
  const project = useProject(`bullmq-${bullmq}`, () => ['sluice'], [`bullmq@${bullmq}`, `ioredis@${ioredis}`])

  test('runs a job through a queue, imported as an ES module', async () => {
    expect(await run(project.folder, 'esm.mjs')).toEqual({ result: 42, limits: 'function', safe: 1 })
  })

  test('runs a job through a queue, loaded with require()', async () => {
    expect(await run(project.folder, 'commonjs.cjs')).toEqual({
      result: 42,
      refused: true,
      limits: 'function',
      level: 0,
    })
  })

  test.each(peers.resolutions)(
    'compiles with %s %s %s %s, declarations included',
    async (...resolution) => {
      // Top-level await asks for an ES module.
      await cp(join(project.folder, 'types.ts'), join(project.folder, 'types.mts'))
      await compile(project.folder, [...STRICT, ...resolution, ...NODE_TYPES, 'types.mts'])
    },
    PATIENCE_MS,
  )

  test('runs the program at the top of the README as it stands', async () => {
    const [program] = codeBlocks(README).filter(({ language }) => language === 'js')
    // Only where its Redis listens is another.
    const text = program?.code.replace('port: 6379', `port: ${redis.port}`)
    expect(text).toContain(`port: ${redis.port}`)
    await writeFile(join(project.folder, 'readme.mjs'), text as string)
    const child = spawn(process.execPath, ['readme.mjs'], { cwd: project.folder, stdio: ['ignore', 'pipe', 'pipe'] })
    let complaints = ''
    child.stderr.on('data', (chunk) => {
      complaints += chunk
    })
    const ended = once(child, 'exit')
    try {
      const [first, second, ...mails] = await firstLines(child.stdout, 52)
      for (const line of [first, second]) expect(line).toMatch(/^full: come back in [1-9]\d\d+ ms$/)
      // On a busy machine a job that is late goes back, and the next one is sent first.
      const expected = Array.from({ length: 50 }, (_, i) => `user${i}@example.com`)
      for (const mail of mails) expect(mail).toMatch(/^\d\d\.\d{3} user\d+@example\.com$/)
      expect(mails.map((mail) => mail.split(' ')[1]).toSorted()).toEqual(expected.toSorted())
      expect(complaints).toBe('')
    } finally {
      child.kill()
      await ended
    }
  })
})

describe('a project with all packages, and the tools of others', () => {
  const OLDEST = 'typescript@5.0.4'
  const tools = [OLDEST, 'jest@29', `vitest@${installedVersion('vitest')}`]
  const project = useProject('tools', () => [...tarballs.keys()], ['bullmq@6.7.0', 'ioredis@6.0.0', ...tools])
  beforeAll(async () => {
    const entries = join(project.folder, 'entries.ts')
    for (const ending of ['mts', 'cts']) await cp(entries, entries.replace(/ts$/, ending))
  })

  test('takes a job over HTTP and refuses one, limits a route, and gets as much by require()', async () => {
    const refused = 'GatewayRefusedError 429'
    expect(await run(project.folder, 'http.mjs')).toEqual({
      state: 'waiting',
      refused,
      limited: [200, 429],
      required: 'function',
    })
  })

  test('serves the page of the dashboard, imported and loaded with require()', async () => {
    expect(await run(project.folder, 'page.mjs')).toEqual([
      [200, 200],
      [200, 200],
    ])
  })

  test(
    'compiles, declarations included',
    async () => {
      await cp(join(project.folder, 'http-types.ts'), join(project.folder, 'http-types.mts'))
      await compile(project.folder, [...STRICT, ...NODENEXT, ...NODE_TYPES, 'http-types.mts'])
    },
    PATIENCE_MS,
  )

  test('calls, listens and tests rules', async () => {
    expect(await run(project.folder, 'egress.mjs')).toEqual({
      ...{ isTyped: true, pauseMs: 7000, wins: true, polite: 'function', refusedForMs: 7000 },
      required: [true, true, true],
    })
  })

  test.each([
    ['worker email', 'SMTP_URL'],
    ['worker db-writes', 'DATABASE_URL'],
    ['worker http', 'TARGETS'],
    ['gateway', 'TOKEN_FILE'],
    ['dashboard', '--token-file'],
    ['metrics', '--port'],
  ])('sluice %s has all that it needs', async (command, setting) => {
    const sluice = join(project.folder, 'node_modules', '.bin', 'sluice')
    expect(await runTool(project.folder, [sluice, ...command.split(' '), '--help'])).toContain(setting)
  })

  test.each([
    ['from ESM and CommonJS', ['entries.mts', 'entries.cts'], ['--module', 'node16', '--moduleResolution', 'node16']],
    ['for a bundler', ['entries.ts'], ['--module', 'esnext', '--moduleResolution', 'bundler']],
  ])(
    `${OLDEST} finds the declarations %s`,
    async (_way, files, resolution) => {
      const tsc = join(project.folder, 'node_modules', 'typescript', 'bin', 'tsc')
      const strict = ['--noEmit', '--strict', '--target', 'es2022', '--skipLibCheck', ...NODE_TYPES]
      await runTool(project.folder, [tsc, ...strict, ...resolution, ...files])
    },
    PATIENCE_MS,
  )

  // A test of Jest that ends after its time finds the modules gone that are loaded when they are needed.
  const patient = [`--testTimeout=${PATIENCE_MS}`]
  test.each([
    ['jest', ['--rootDir', '.', '--testMatch', '**/sluice.test.cjs', ...patient]],
    ['vitest', ['run', '--dir', '.', 'sluice.test.mjs', ...patient]],
  ])(
    '%s runs its tests',
    async (tool, args) => {
      const bin = { jest: ['jest', 'bin', 'jest.js'], vitest: ['vitest', 'vitest.mjs'] }[tool] as string[]
      const env = { PATH: process.env.PATH, REDIS_URL: redis.url }
      const output = await runTool(project.folder, [join(project.folder, 'node_modules', ...bin), ...args], env)
      expect(output).toMatch(/Tests[\s\S]*1 passed/)
    },
    PATIENCE_MS,
  )
})

/** The version of a package that this project is tested with. */
function installedVersion(name: string): string {
  return JSON.parse(readFileSync(join(ROOT, 'node_modules', name, 'package.json'), 'utf8')).version
}

async function firstLines(stream: Readable, count: number): Promise<string[]> {
  const lines: string[] = []
  for await (const line of createInterface(stream)) {
    lines.push(line)
    if (lines.length === count) break
  }
  return lines
}
