import { existsSync, mkdirSync, renameSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { expect, test } from 'vitest'
import { temporaryFolder } from '../support/temporary-folder.ts'

const { compiledDemo } = await import(new URL('../../workers/demo/compiled.mjs', import.meta.url).href)

/** A project with a file of each kind, and what was compiled for it. */
function project() {
  const root = join(temporaryFolder(), 'project')
  const write = (file: string, text: string) => {
    mkdirSync(join(root, file, '..'), { recursive: true })
    writeFileSync(join(root, file), text)
  }
  const alone = ['embedded-files.ts', 'node_modules/.package-lock.json', 'tsconfig.json']
  const files = [...alone, 'lua/redis/a.lua', 'src/a/b.ts', 'packages/a/src/a.js']
  for (const file of [...files, 'workers/start.mjs']) write(file, 'text')
  const made: string[] = []
  const start = (at = root): Promise<string> =>
    compiledDemo(at, async (folder: string) => {
      made.push(basename(folder))
      mkdirSync(folder, { recursive: true })
    })
  return { root, files, write, start, made }
}

test('is compiled once', async () => {
  const { start, made } = project()
  const folder = await start()
  expect(await start()).toBe(folder)
  expect(made).toEqual([basename(folder)])
})

test('is compiled again after a change of any source, a new one included, or of the packages', async () => {
  const { files, write, start, made } = project()
  await start()
  for (const file of [...files, 'src/new.ts']) {
    write(file, 'other text')
    await start()
  }
  expect(new Set(made).size).toBe(files.length + 2)
})

test('what editors hide among the sources is none: a lock that is a link to nowhere, and unsaved text', async () => {
  const { root, write, start, made } = project()
  await start()
  symlinkSync('nowhere', join(root, 'src', '.#b.ts'))
  write('src/a/.b.ts.swp', 'unsaved')
  await start()
  expect(made).toHaveLength(1)
})

test('is compiled again at another place, which it names', async () => {
  const { root, start, made } = project()
  await start()
  renameSync(root, `${root}-moved`)
  await start(`${root}-moved`)
  expect(new Set(made).size).toBe(2)
})

test('outdated ones go after a day: before, another demonstration may still start programs of them', async () => {
  const { write, start } = project()
  const first = await start()
  write('src/a/b.ts', 'second')
  const second = await start()
  const past = new Date(Date.now() - 25 * 3600 * 1000)
  utimesSync(first, past, past)
  write('src/a/b.ts', 'third')
  const third = await start()
  expect([first, second, third].map((folder) => existsSync(folder))).toEqual([false, true, true])
})
