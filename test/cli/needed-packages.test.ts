import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { loadWithPackages, NEEDED_PACKAGES, nameOf } from '../../src/cli/needed-packages.ts'
import { ROOT } from '../package/code-blocks.ts'

const PROGRAM = 'src/programs/program.ts'
const FILES: Readonly<Record<keyof typeof NEEDED_PACKAGES, readonly string[]>> = {
  metrics: ['src/cli/commands/metrics.ts'],
  dashboard: ['src/cli/commands/dashboard.ts'],
  gateway: ['src/programs/gateway/program.ts'],
  'worker email': ['src/programs/email/program.ts', PROGRAM],
  'worker db-writes': ['src/programs/db-writes/program.ts', PROGRAM],
  'worker http': ['src/programs/http/program.ts', PROGRAM],
}
const names = Object.keys(FILES) as (keyof typeof NEEDED_PACKAGES)[]
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

test.each(names)('%s needs what its files import', (name) => {
  const optional = Object.keys(manifest.peerDependenciesMeta)
  const found = new Set(FILES[name].flatMap((file) => [...packagesOf(join(ROOT, file))]))
  const imported = [...found].filter((one) => optional.includes(one))
  // It is no import: the page gets its files.
  if (name === 'dashboard') imported.push('uplot')
  expect(imported.toSorted()).toEqual(NEEDED_PACKAGES[name].map(nameOf).toSorted())
})

test('docs/cli.md has the same packages', () => {
  const text = readFileSync(join(ROOT, 'docs', 'cli.md'), 'utf8')
  for (const name of names) {
    const [, cell = ''] = new RegExp(`^\\| \`${name}\` \\| (.*) \\|$`, 'm').exec(text) ?? []
    const listed = [...cell.matchAll(/`([^`]+)`/g)].map(([, one]) => one)
    expect([name, ...listed.toSorted()]).toEqual([name, ...[...NEEDED_PACKAGES[name]].toSorted()])
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
