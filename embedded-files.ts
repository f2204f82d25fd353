import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { readWebFiles } from './packages/dashboard/src/web-files.ts'
import { bareLua } from './src/redis/lua-composer.ts'

const ROOT = import.meta.dirname

/** The texts of a folder by their names. */
function textsOf(folder: string, ending: RegExp): Record<string, string> {
  const files = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
  const named = files.filter((file) => ending.test(file)).map((file) => file.replaceAll('\\', '/'))
  return Object.fromEntries(named.toSorted().map((file) => [file, readFileSync(join(ROOT, folder, file), 'utf8')]))
}

/** Bare, since it is compiled with each program that loads it. */
function luaTexts(): Record<string, string> {
  const texts = Object.entries(textsOf('lua', /\.lua$/))
  return Object.fromEntries(texts.map(([file, text]) => [file, bareLua(text)]))
}

/** What replaces the modules that read files of the check-out: with the files inside, a program can be bundled as well. */
const EMBEDDED: Readonly<Record<string, () => Promise<string>>> = {
  'src/redis/lua-files.ts': async () => `
const texts = ${JSON.stringify(luaTexts())}
export function readLuaFile(file) {
  return texts[file + '.lua']
}`,
  'packages/dashboard/src/web-files.ts': async () => `
const texts = ${JSON.stringify([...(await readWebFiles())])}
export async function readWebFiles() {
  return new Map(texts)
}`,
}

/** Whether a module of ours is replaced. */
export function isEmbedded(id: string): boolean {
  return relative(ROOT, id) in EMBEDDED
}

/** The plugin for builds: of the package, and of the programs that tests start. */
export const embedded = {
  name: 'embedded-files',
  async load(id: string) {
    const [, text] = Object.entries(EMBEDDED).find(([file]) => id === join(ROOT, file)) ?? []
    return text && { code: await text(), moduleType: 'js' as const }
  },
}
