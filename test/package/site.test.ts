import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { sidebar } from '../../site/.vitepress/sidebar.ts'
import { codeBlocks, documents, examples, isExample, pages, ROOT, showsExamples } from './code-blocks.ts'

/** `npm run check:docs` builds the site, and fails for a dead link; it takes too long for a test. */
const HOME = 'index.md'

test('every page but the first is in the sidebar of the site once', () => {
  const linked = sidebar.flatMap(({ items }) => items.map(({ link }) => `${link.slice(1)}.md`))
  expect(linked.toSorted()).toEqual(
    pages()
      .filter((page) => page !== HOME)
      .toSorted(),
  )
})

test('the links of the first page lead to pages', () => {
  const links = [...readFileSync(join(ROOT, 'docs', HOME), 'utf8').matchAll(/^ +link: \/(\S+)$/gm)]
  expect(links.length).toBeGreaterThan(5)
  for (const [, link = ''] of links) expect(pages()).toContain(`${link.replace(/\/$/, '/index')}.md`)
})

test('no page links to a document outside of docs, which the site does not have', () => {
  const outside = pages().flatMap((page) => {
    const links = readFileSync(join(ROOT, 'docs', page), 'utf8').matchAll(/\]\((?!https?:)([^)#\s]+\.md)/g)
    return [...links]
      .filter(([, path = '']) => join(dirname(page), path).startsWith('..'))
      .map(([link]) => [page, link])
  })
  expect(outside).toEqual([])
})

test('the code of the tutorial and of the recipes is that of examples', () => {
  const blocks = documents()
    .filter(showsExamples)
    .flatMap(codeBlocks)
    .filter(({ language }) => ['js', 'ts'].includes(language))
  expect(blocks.length).toBeGreaterThan(15)
  expect(blocks.filter((block) => !isExample(block))).toEqual([])
})

test('every example is run, or is imported by one that is', () => {
  const run = readFileSync(join(ROOT, 'test', 'examples.test.ts'), 'utf8')
  const programs = examples().map((file) => [file, readFileSync(join(ROOT, 'examples', file), 'utf8')] as const)
  const notRun = programs.filter(([file]) => {
    const name = file.slice(file.lastIndexOf('/') + 1)
    const imported = new RegExp(`(?:from |import\\()'\\./(?:[\\w-]+/)?${name.replaceAll('.', '\\.')}'`)
    return !run.includes(`'${name}'`) && !programs.some(([, text]) => imported.test(text))
  })
  expect(notRun.map(([file]) => file)).toEqual([])
})
