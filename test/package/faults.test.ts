import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'
import { ROOT } from './code-blocks.ts'

const ROWS = 42
const text = readFileSync(join(ROOT, 'docs', 'faults.md'), 'utf8')
const [before = '', tests = ''] = text.split('\n## The tests\n')
/** Row, fault and outcome of each line of the tables before the figures. */
const rows = rowsOf(before.split('\n## Figures\n')[0])
/** Row and figure of each line of the tables of figures. */
const figureRows = rowsOf(before.split('\n## Figures\n')[1]?.split('\n## ')[0])
/** Row and tests of each line of the last table. */
const testRows = rowsOf(tests)

function rowsOf(part = ''): string[][] {
  return part
    .split('\n')
    .filter((line) => /^\| \d/.test(line))
    .map((line) => line.slice(2, -2).split(' | '))
}

/** What a file calls its tests and groups of tests; what is put into a template is `…`. */
function titlesIn(file: string): string[] {
  const source = ts.createSourceFile(file, readFileSync(join(ROOT, 'test', file), 'utf8'), ts.ScriptTarget.Latest)
  const titles: string[] = []
  const visit = (node: ts.Node) => {
    if (ts.isCallExpression(node) && /^(test|describe|describePage)\b/.test(node.getText(source))) {
      const [title] = node.arguments
      if (title && ts.isStringLiteralLike(title)) titles.push(title.text)
      if (title && ts.isTemplateExpression(title)) {
        titles.push(
          [title.head, ...title.templateSpans.map(({ literal }) => literal)].map((part) => part.text).join('…'),
        )
      }
    }
    ts.forEachChild(node, visit)
  }
  visit(source)
  return titles
}

/** The rows that the comments of a file say its tests are for. */
function rowsTestedIn(file: string): number[] {
  const source = readFileSync(join(ROOT, 'test', file), 'utf8')
  const comments = [...source.matchAll(/\/\/ Fault table, rows? ([\d, and]+)/g)]
  return comments.flatMap(([, rows = '']) => rows.match(/\d+/g) ?? []).map(Number)
}

test('docs/faults.md has every row once, with its outcome, its tests and a figure', () => {
  const all = Array.from({ length: ROWS }, (_, i) => i + 1)
  expect(rows.map(([row]) => Number(row)).toSorted((a, b) => a - b)).toEqual(all)
  expect(testRows.map(([row]) => Number(row))).toEqual(all)
  expect(new Set(figureRows.map(([row]) => Number(row)))).toEqual(new Set(all))
  for (const cells of rows) expect(cells, cells[0]).toHaveLength(3)
  for (const cells of [...rows, ...figureRows, ...testRows])
    expect(cells.filter((cell) => cell.trim() === '')).toEqual([])
})

test.each(testRows.map(([row, tests = '']) => [row, /^`(.+?)`/.exec(tests)?.[1] ?? ''] as const))(
  'row %s: %s, the file of its first test, names the row',
  (row, file) => {
    expect(rowsTestedIn(file)).toContain(Number(row))
  },
)

test.each(testRows.map(([row, tests = '']) => [row, tests] as const))(
  'row %s: the tests that it names exist',
  (_row, tests) => {
    for (const named of tests.split('<br>')) {
      const [, file, title] = /^`([\w/-]+\.test\.ts)`: (.+)$/.exec(named) ?? []
      expect(file, named).toBeDefined()
      expect(titlesIn(file as string), file).toContain(title)
    }
  },
)
