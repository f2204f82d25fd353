import { mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { temporaryFolder } from '../support/temporary-folder.ts'

const { ensurePage } = await import(new URL('../../workers/page.mjs', import.meta.url).href)

test('the page is built if it is missing or older than a source, a folder of sources or the packages', async () => {
  const root = join(temporaryFolder(), 'project')
  const dashboard = join(root, 'packages', 'dashboard')
  const write = (file: string) => {
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, '')
  }
  const sources = [join(dashboard, 'web', 'base', 'a.js'), join(dashboard, 'vite.config.ts')]
  const all = [...sources, join(root, 'node_modules', '.package-lock.json')]
  for (const file of all) write(file)
  const page = join(dashboard, 'dist', 'web', 'index.html.gz')
  let builds = 0
  const ensure = async () => {
    await ensurePage(root, async () => {
      builds += 1
      write(page)
      const laterS = Date.now() / 1000 + 100 * builds
      utimesSync(page, laterS, laterS)
    })
    return builds
  }
  expect([await ensure(), await ensure()]).toEqual([1, 1])
  rmSync(page)
  expect([await ensure(), await ensure()]).toEqual([2, 2])
  const changed = [...all, join(dashboard, 'web', 'base')]
  for (const [i, path] of changed.entries()) {
    const laterS = Date.now() / 1000 + 100 * builds + 50
    utimesSync(path, laterS, laterS)
    expect([path, await ensure(), await ensure()]).toEqual([path, 3 + i, 3 + i])
  }
})
