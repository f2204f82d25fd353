import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { cp, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
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
let tarball: string
/** Makes one project after the other, while tests of those before it run: npm waits and computes in turn. */
let made: Promise<unknown> = Promise.resolve()
const projects: (() => void)[] = []

beforeAll(async () => {
  redis = await startRedis({ ignoreGiven: true })
  tarball = await built.pack()
  for (const make of projects) make()
})
afterAll(async () => {
  await made
  await redis?.stop()
})

/** A new project beside the package, with nothing in it but the package and those packages. */
async function makeProject(name: string, packages: readonly string[]): Promise<string> {
  const folder = join(built.projects, name)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name, private: true }))
  await npm(folder, ['install', '--ignore-scripts', tarball, ...packages])
  await cp(CONSUMER, folder, { recursive: true })
  return folder
}

/** A project for the tests of a block. */
function useProject(name: string, packages: readonly string[]): { readonly folder: string } {
  let making: Promise<string>
  let folder = ''
  projects.push(() => {
    making = made.then(() => makeProject(name, packages))
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

const MOST_FILES = 154
const MOST_BYTES = 2_500_000

test('the package holds what it needs at run time, and nothing else', async () => {
  const names = (await runCommand('tar', ['-tzf', tarball])).trim().split('\n')
  const top = new Set(names.map((name) => name.split('/')[1] as string))
  expect([...top].sort()).toEqual(['CHANGELOG.md', 'LICENSE', 'README.md', 'dist', 'docs', 'package.json'])
  expect(names.filter((name) => name.startsWith('package/docs/') && !name.endsWith('.acl'))).toEqual([])
  expect(names.length).toBeLessThanOrEqual(MOST_FILES)
  expect((await stat(tarball)).size).toBeLessThanOrEqual(MOST_BYTES)
})

test('it has no dependencies but its peers, and the licences of the code that it contains', async () => {
  const { dependencies } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'))
  expect(dependencies).toBeUndefined()
  const licences = await readFile(join(built.folder, 'dist', 'THIRD-PARTY-LICENSES.txt'), 'utf8')
  for (const name of ['commander', 'cli-table3', 'picocolors', 'log-update', 'cli-progress', 'lru-cache']) {
    expect(licences).toContain(`Name: ${name}\n`)
  }
})

/** The packages that a file of `dist` loads at once, by itself or through other files. */
function packagesLoadedBy(file: string): string[] {
  const files = new Set([file])
  const packages = new Set<string>()
  for (const name of files) {
    const text = readFileSync(join(built.folder, 'dist', name), 'utf8')
    for (const [, esm, cjs] of text.matchAll(
      /^(?:import|export)\b[^"']*?"([^"]+)";$|^(?:const|let) .*?\brequire\("([^"]+)"\)/gm,
    )) {
      const loaded = (esm ?? cjs) as string
      if (loaded.startsWith('./')) files.add(loaded.slice(2))
      else if (!loaded.startsWith('node:')) packages.add(loaded)
    }
  }
  return [...packages].sort()
}

test.each(['js', 'cjs'])('the chunks of an entry load no package that the entry could do without: .%s', (ending) => {
  expect(packagesLoadedBy(`client.${ending}`)).toEqual(['structured-headers'])
  expect(packagesLoadedBy(`egress.${ending}`)).toEqual(['structured-headers'])
  expect(packagesLoadedBy(`egress-fetch.${ending}`)).toEqual(['undici'])
  for (const looks of ['inspect', 'metrics', 'dashboard']) {
    expect(packagesLoadedBy(`${looks}.${ending}`)).not.toContain('bullmq')
  }
  // BullMQ loads ioredis itself.
  expect(packagesLoadedBy(`index.${ending}`)).toEqual(['bullmq', 'ioredis'])
})

/** The names that a file of `dist` exports. */
function exportedBy(file: string): string[] {
  const text = readFileSync(join(built.folder, 'dist', file), 'utf8')
  const names = file.endsWith('.cjs')
    ? text.matchAll(/^exports\.(\w+) = |^Object\.defineProperty\(exports, "(\w+)"/gm)
    : (/^export \{ (.*) \};$/m.exec(text)?.[1] ?? '').matchAll(/(\w+)(?:,|$)/g)
  return [...new Set([...names].map(([, name, defined]) => (name ?? defined) as string))].sort()
}

test('an entry exports the same from its ES module and its CommonJS module: nothing that only other entries need', () => {
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { exports: object }
  const entries = Object.values(exports).flatMap(({ require }) => (require ? [basename(require.default)] : []))
  expect(entries.length).toBeGreaterThan(10)
  for (const entry of entries) {
    const names = exportedBy(entry.replace('.cjs', '.js'))
    expect(names.length, entry).toBeGreaterThan(0)
    expect(exportedBy(entry), entry).toEqual(names)
  }
})

test('the commands that only look load no BullMQ, which takes memory', () => {
  const chunks = readdirSync(join(built.folder, 'dist')).filter((file) =>
    /^(dashboard|metrics|status|top|explain)-.*\.js$/.test(file),
  )
  expect(chunks.length).toBeGreaterThanOrEqual(5)
  for (const chunk of chunks) expect(packagesLoadedBy(chunk), chunk).not.toContain('bullmq')
})

describe.each(PROJECTS)('a project that has only bullmq $bullmq and ioredis $ioredis', (peers) => {
  const { bullmq, ioredis } = peers
  const project = useProject(`bullmq-${bullmq}`, [`bullmq@${bullmq}`, `ioredis@${ioredis}`])

  test('gets none of the optional peers', async () => {
    const installed = await readdir(join(project.folder, 'node_modules'))
    expect(installed).toContain('sluice')
    const manifest = JSON.parse(await readFile(join(project.folder, 'node_modules/sluice/package.json'), 'utf8'))
    for (const peer of Object.keys(manifest.peerDependenciesMeta)) expect(installed).not.toContain(peer)
  })

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

  test.each([
    ['sluice/egress', 'structured-headers'],
    ['sluice/egress/fetch', 'undici'],
    ['sluice/client', 'structured-headers'],
    ['sluice/http', 'fastify-plugin|structured-headers'],
  ])('is told by %s which package is missing: %s', async (entry, missing) => {
    const program = `await import('${entry}').catch(({ code, message }) => console.log(code, message))`
    const output = await runCommand(process.execPath, ['--input-type=module', '-e', program], { cwd: project.folder })
    expect(output).toMatch(new RegExp(`^ERR_MODULE_NOT_FOUND Cannot find package '(?:${missing})'`))
  })

  test.each([
    ['sluice/metrics', ['prom-client@15']],
    ['sluice/egress/fetch', ['undici@7']],
    ['sluice/client', ['structured-headers@2']],
    [
      'sluice/http',
      [
        '@fastify/proxy-addr@5',
        'ajv-formats@3',
        'ajv@8',
        'fastify-plugin',
        'ipaddr.js@2',
        'structured-headers@2',
        'zod@4',
      ],
    ],
    ['sluice/dashboard', ['@fastify/cookie@11', 'structured-headers@2', 'zod@4']],
  ])('is told by require(%s) all packages that are missing', async (entry, missing) => {
    const program = `try { require('${entry}') } catch ({ code, message }) { console.log(code, message) }`
    const output = await runCommand(process.execPath, ['-e', program], { cwd: project.folder })
    const [said, listed = ''] = output.trim().split(': npm install ')
    expect(said).toBe(`MODULE_NOT_FOUND ${entry} needs packages that are not installed`)
    expect(listed.split(' ').toSorted()).toEqual(missing)
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

describe('a project with the packages of sluice/http beside it', () => {
  const [, , ...listed] =
    codeBlocks(join(ROOT, 'docs', 'http.md'))[0]
      ?.code.split('#')[0]
      ?.trim()
      .split(' ') ?? []
  const project = useProject('http', ['fastify@5', ...listed])

  test('takes a job and refuses one, limits a route, and gets as much by require()', async () => {
    const refused = 'GatewayRefusedError 429'
    expect(await run(project.folder, 'http.mjs')).toEqual({
      state: 'waiting',
      refused,
      limited: [200, 429],
      required: 'function',
    })
  })

  test(
    'compiles, declarations included',
    async () => {
      await cp(join(project.folder, 'http-types.ts'), join(project.folder, 'http-types.mts'))
      await compile(project.folder, [...STRICT, ...NODENEXT, ...NODE_TYPES, 'http-types.mts'])
    },
    PATIENCE_MS,
  )
})

describe('a project with the optional peers, and the tools of others', () => {
  const OLDEST = 'typescript@5.0.4'
  const peers = ['bullmq@6.7.0', 'ioredis@6.0.0', 'structured-headers', 'undici@7']
  const project = useProject('tools', [...peers, OLDEST, 'jest@29', `vitest@${installedVersion('vitest')}`])
  beforeAll(async () => {
    const entries = join(project.folder, 'entries.ts')
    for (const ending of ['mts', 'cts']) await cp(entries, entries.replace(/ts$/, ending))
  })

  test('calls, listens and tests rules', async () => {
    expect(await run(project.folder, 'egress.mjs')).toEqual({
      ...{ isTyped: true, pauseMs: 7000, wins: true, polite: 'function', refusedForMs: 7000 },
      required: [true, true, true],
    })
  })

  test.each([
    [
      'node16, from ESM and CommonJS',
      ['entries.mts', 'entries.cts'],
      ['--module', 'node16', '--moduleResolution', 'node16'],
    ],
    ['node10', ['entries.ts'], ['--module', 'commonjs', '--moduleResolution', 'node']],
    ['bundler', ['entries.ts'], ['--module', 'esnext', '--moduleResolution', 'bundler']],
  ])(
    `${OLDEST} finds the declarations: %s`,
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
