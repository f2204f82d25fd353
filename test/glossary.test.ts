import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The last column of the glossary. */
function replacedWords(): string[] {
  const [, glossary = ''] = readFileSync(join(ROOT, 'docs/development.md'), 'utf8').split('## Glossary')
  const [table = ''] = glossary.split('\n## ')
  const rows = table.split('\n').filter((line) => line.startsWith('| '))
  return rows.slice(1).flatMap((row) => (row.split('|').at(-2) ?? '').split(',').flatMap((word) => word.trim() || []))
}

const texts = ['src', 'lua', 'web'].flatMap((folder) =>
  (readdirSync(join(ROOT, folder), { recursive: true }) as string[])
    .filter((file) => /\.(ts|js|lua|html|css)$/.test(file))
    .map((file) => [`${folder}/${file}`, readFileSync(join(ROOT, folder, file), 'utf8')] as const),
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
