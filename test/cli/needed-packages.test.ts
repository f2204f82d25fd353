import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Command } from 'commander'
import { afterEach, expect, test, vi } from 'vitest'
import { CommandError } from '../../src/cli/command-error.ts'
import { loadWithPackages, NEEDED_PACKAGES, nameOf } from '../../src/cli/needed-packages.ts'
import { hostProgram } from '../../src/cli/run-program.ts'
import { ROOT } from '../package/code-blocks.ts'

afterEach(() => {
  vi.restoreAllMocks()
})

const PROGRAM = 'src/programs/program.ts'
const FILES: Readonly<Record<keyof typeof NEEDED_PACKAGES, readonly string[]>> = {
  metrics: ['src/metrics/index.ts'],
  dashboard: ['src/programs/dashboard/program.ts'],
  gateway: ['src/programs/gateway/program.ts'],
  'worker email': ['src/programs/email/program.ts', PROGRAM],
  'worker db-writes': ['src/programs/db-writes/program.ts', PROGRAM],
  'worker http': ['src/programs/http/program.ts', PROGRAM],
}
const names = Object.keys(FILES) as (keyof typeof NEEDED_PACKAGES)[]
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
const optional = Object.keys(manifest.peerDependenciesMeta)

test.each(names)('%s needs what its files import', (name) => {
  const found = new Set(FILES[name].flatMap((file) => [...packagesOf(join(ROOT, file))]))
  const imported = [...found].filter((one) => optional.includes(one))
  // It is no import: the page gets its files.
  if (name === 'dashboard') imported.push('uplot')
  expect(imported.toSorted()).toEqual(NEEDED_PACKAGES[name].map(nameOf).toSorted())
})

test.each(readdirSync(join(ROOT, 'src/cli/commands')))(
  'the command in %s is loaded, with its help, without any of them',
  (file) => {
    const imported = packagesOf(join(ROOT, 'src/cli/commands', file))
    expect(optional.filter((one) => imported.has(one))).toEqual([])
  },
)

test('without its packages a program says in its help what to install', async () => {
  const write = vi.spyOn(process.stdout, 'write').mockReturnValue(true)
  vi.spyOn(process, 'exit').mockImplementation((code) => {
    throw new Error(`exit ${code}`)
  })
  const run = (...args: string[]) => {
    const program = new Command('sluice').exitOverride()
    const command = program.command('worker').command('email').description('Sends mail.')
    hostProgram(command, () => Promise.reject(new CommandError(1, 'worker email needs packages: npm install zod pino')))
    return program.parseAsync(['worker', 'email', ...args], { from: 'user' })
  }
  await expect(run('--help')).rejects.toThrow('exit 0')
  expect(write.mock.calls.join()).toMatch(
    /^Usage: sluice worker email\n\nSends mail\.\n.*\nworker email needs .* zod pino\n$/,
  )
  await expect(run()).rejects.toThrow(/^worker email needs packages: npm install zod pino$/)
})

test('docs/projects.md has what each entry of the package imports', () => {
  const text = readFileSync(join(ROOT, 'docs', 'projects.md'), 'utf8')
  for (const entry of ['client', 'egress', 'egress/fetch', 'http', 'dashboard', 'metrics']) {
    const [, listed = ''] = new RegExp(`^\\| \`sluice/${entry}\` \\| \`npm install (.*)\` \\|$`, 'm').exec(text) ?? []
    const imported = packagesOf(join(ROOT, 'src', entry, 'index.ts'))
    const needed = optional.filter((one) => imported.has(one))
    // It is a plugin of the first, and serves the files of the other.
    if (entry === 'dashboard') needed.push('fastify', 'uplot')
    expect([entry, ...listed.split(' ').map(nameOf).toSorted()]).toEqual([entry, ...needed.toSorted()])
  }
  for (const entry of ['', 'inspect', 'limits', 'testing']) {
    const imported = packagesOf(join(ROOT, 'src', entry, 'index.ts'))
    expect(optional.filter((one) => imported.has(one))).toEqual([])
  }
})

test('what is installed is loaded', async () => {
  expect(await loadWithPackages('metrics', async () => 'loaded')).toBe('loaded')
})

/** The packages that a module and those which it imports load: not those of types alone, nor those that are loaded late. */
function packagesOf(file: string, seen = new Set<string>()): Set<string> {
  const found = new Set<string>()
  if (seen.has(file)) return found
  seen.add(file)
  const text = readFileSync(file, 'utf8')
  for (const [, from = ''] of text.matchAll(/^(?:import|export) (?!type\b)[^'"]*?from '([^']+)'/gm)) {
    if (from.startsWith('.')) for (const name of packagesOf(join(dirname(file), from), seen)) found.add(name)
    else found.add(from.split('/', from.startsWith('@') ? 2 : 1).join('/'))
  }
  return found
}
