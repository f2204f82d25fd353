import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT } from '../package/code-blocks.ts'
import { filledDocuments } from './blocks.ts'
import { commandsPage } from './commands.ts'

// Each fails when `npm run reference` is due.

test('the tables from the code are those of the code', () => {
  const found = filledDocuments()
  expect(found.length).toBeGreaterThan(8)
  // Their names alone: a page is long.
  expect(found.filter(({ now, filled }) => now !== filled).map(({ file }) => relative(ROOT, file))).toEqual([])
})

test('docs/commands.md has every command as it is', async () => {
  expect(readFileSync(join(ROOT, 'docs', 'commands.md'), 'utf8')).toBe(await commandsPage())
})
