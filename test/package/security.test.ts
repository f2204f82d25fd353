import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT } from './code-blocks.ts'

const document = readFileSync(join(ROOT, 'docs', 'security.md'), 'utf8')

/** The tests that a cell names: files, each with the titles behind it. */
function namedIn(text: string): { file: string; titles: string[] }[] {
  const parts = text.split(/`(test\/[\w./-]+\.test\.ts)`/).slice(1)
  return parts.flatMap((part, i) => {
    if (i % 2 === 1) return []
    return {
      file: part,
      titles: [...(parts[i + 1] ?? '').matchAll(/"([^"\n]+)"/g)].map(([, title]) => title as string),
    }
  })
}

const [, table = ''] = document.split('\n## Attacks that were tried\n')

test.each(namedIn(table))('$file is there, with $titles', ({ file, titles }) => {
  const text = readFileSync(join(ROOT, file), 'utf8')
  expect(titles.filter((title) => !text.includes(title))).toEqual([])
})

test('every attack names a test', () => {
  const rows = table
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .slice(2)
  expect(rows.length).toBeGreaterThan(10)
  expect(rows.filter((row) => namedIn(row).length === 0)).toEqual([])
})
