import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { documents } from './package/code-blocks.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The last column of the glossary. */
function replacedWords(): string[] {
  const [, glossary = ''] = readFileSync(join(ROOT, 'docs/development.md'), 'utf8').split('## Glossary')
  const [table = ''] = glossary.split('\n## ')
  const rows = table.split('\n').filter((line) => line.startsWith('| '))
  return rows.slice(1).flatMap((row) => (row.split('|').at(-2) ?? '').split(',').flatMap((word) => word.trim() || []))
}

const CODE = ['src', 'lua', 'packages', 'examples'].flatMap((folder) =>
  (readdirSync(join(ROOT, folder), { recursive: true }) as string[])
    .filter((file) => /\.(m?ts|[cm]?js|lua|html|css)$/.test(file) && !/\/(test|dist|node_modules)\//.test(file))
    .map((file) => join(ROOT, folder, file)),
)

/** The glossary itself names the words, and some rows quote the titles of tests. */
function checked(text: string): string {
  const [before = '', after = ''] = text.split(/^## Glossary$/m)
  const lines = [before, ...after.split('\n## ').slice(1)].join('\n## ').split('\n')
  return lines.map((line) => (line.includes('.test.ts`') ? '' : line)).join('\n')
}

const texts = [...CODE, ...documents(), join(ROOT, 'CHANGELOG.md')].map(
  (file) => [relative(ROOT, file), checked(readFileSync(file, 'utf8'))] as const,
)

test('the glossary replaces some words', () => {
  expect(replacedWords()).toContain('the other side')
  expect(replacedWords().length).toBeGreaterThan(8)
})

test.each(replacedWords())('"%s" is not used: the glossary has another word', (word) => {
  const used = new RegExp(`(?<![\\w-])${word}(?![\\w-])`, 'i')
  const places = texts.flatMap(([file, text]) =>
    text.split('\n').flatMap((line, i) => (used.test(line) ? [`${file}:${i + 1}: ${line.trim()}`] : [])),
  )
  expect(places).toEqual([])
})
