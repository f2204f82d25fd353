import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { checkInstructions, releaseNotes } from '../../.ci/release-notes.ts'
import { VERSION } from '../../src/version.ts'
import { ROOT } from './code-blocks.ts'

const changelog = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

test('the version of the code, of the manifest and of the lock file are the newest of CHANGELOG.md', () => {
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
  const [unreleased, newest] = [...changelog.matchAll(/^## \[(.+)\](.*)$/gm)]
  expect(unreleased?.[1]).toBe('Unreleased')
  expect(newest?.[2]).toMatch(/^ - \d{4}-\d\d-\d\d$/)
  expect([VERSION, manifest.version, lock.version, lock.packages[''].version]).toEqual(Array(4).fill(newest?.[1]))
})

test('all packages have one version, and ask for that of each other', () => {
  for (const name of readdirSync(join(ROOT, 'packages'))) {
    const { version, ...rest } = JSON.parse(readFileSync(join(ROOT, 'packages', name, 'package.json'), 'utf8'))
    const ours = Object.entries({ ...rest.dependencies, ...rest.peerDependencies }).filter(([one]) =>
      /^sluice/.test(one),
    )
    expect([version, ...ours.map(([, wanted]) => wanted)]).toEqual(Array(ours.length + 1).fill(VERSION))
  }
})

test('a release has the notes of its version, and no others', () => {
  const text =
    '# Changelog\n\n## [Unreleased]\n\n- c\n\n## [1.1.0] - 2026-02-01\n\n### Added\n\n- b\n\n## [1.0.0] - 2026-01-01\n\n- a\n'
  expect(releaseNotes('v1.1.0', '1.1.0', text)).toBe('### Added\n\n- b')
  expect(releaseNotes('v1.0.0', '1.0.0', text)).toBe('- a')
  expect(releaseNotes(`v${VERSION}`, manifest.version, changelog)).toMatch(/^### Added$/m)
})

test('the notes of a release have no line breaks inside of sentences, and links that lead to its files', () => {
  const text = '## [1.0.0] - 2026-01-01\n\n### Added\n\n- a [b](docs/b.md#c)\n  and\n  c\n- [d](https://d.test)\n'
  expect(releaseNotes('v1.0.0', '1.0.0', text, 'https://git.test/me/it')).toBe(
    '### Added\n\n- a [b](https://git.test/me/it/blob/v1.0.0/docs/b.md#c) and c\n- [d](https://d.test)',
  )
})

test('a document that says that the package is not published yet ends a release', () => {
  expect(() => checkInstructions({ 'README.md': 'Sluice is not on npm yet.' })).toThrow('README.md says that Sluice')
  checkInstructions({ 'README.md': 'npm install sluice' })
})

test('a tag that is not the version, and a version without notes, end a release', () => {
  expect(() => releaseNotes('v1.2.0', '1.1.0', '')).toThrow(
    'the tag must be v1.1.0, the version in package.json; got v1.2.0',
  )
  expect(() => releaseNotes('v1.1.0', '1.1.0', '## [Unreleased]\n\n- c\n')).toThrow(
    "needs a section that begins with '## [1.1.0] - '",
  )
})

test('a tag publishes with provenance, which needs an identity of the job', () => {
  const { on, jobs } = parse(readFileSync(join(ROOT, '.github/workflows/release.yml'), 'utf8'))
  expect(on.push.tags).toEqual(['v*'])
  expect(jobs.publish.permissions['id-token']).toBe('write')
  expect(commandsOf(jobs.publish)).toContain(
    'for package in ./sluice-*.tgz; do npm publish "$package" --provenance --access public; done',
  )
})

test('what may write and sign runs no code of packages', () => {
  const { permissions, jobs } = parse(readFileSync(join(ROOT, '.github/workflows/release.yml'), 'utf8'))
  expect([permissions, jobs.package.permissions]).toEqual([{ contents: 'read' }, undefined])
  expect(commandsOf(jobs.package)).toContain('bash .ci/run')
  expect(jobs.publish.needs).toBe('package')
  expect(commandsOf(jobs.publish).map((command) => command.split(' ').slice(0, 2).join(' '))).toEqual([
    'for package',
    'gh release',
  ])
})

test('workflows name each action by its commit, and keep no credentials of a check-out', () => {
  const folder = join(ROOT, '.github/workflows')
  const jobs = readdirSync(folder).flatMap((file): Job[] =>
    Object.values(parse(readFileSync(join(folder, file), 'utf8')).jobs),
  )
  const used = jobs.flatMap(({ steps }) => steps).filter(({ uses }) => uses !== undefined)
  expect(used.length).toBeGreaterThan(8)
  expect(used.filter(({ uses = '' }) => !/@[0-9a-f]{40}$/.test(uses))).toEqual([])
  const checkouts = used.filter(({ uses = '' }) => uses.startsWith('actions/checkout@'))
  expect(checkouts.filter((step) => step.with?.['persist-credentials'] !== false)).toEqual([])
})

interface Step {
  readonly run?: string
  readonly uses?: string
  readonly with?: Readonly<Record<string, unknown>>
}

interface Job {
  readonly steps: readonly Step[]
}

function commandsOf({ steps }: Job): string[] {
  return steps.flatMap(({ run }) => run ?? [])
}

test('npm publishes the manifest as it is', () => {
  // npm 11 warns about a path that begins with ./ and writes another.
  const { bin } = JSON.parse(readFileSync(join(ROOT, 'packages/cli/package.json'), 'utf8'))
  const paths = Object.values(bin as Record<string, string>)
  expect(paths.filter((path) => path.startsWith('./'))).toEqual([])
})
