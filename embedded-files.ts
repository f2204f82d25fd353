import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync } from 'node:zlib'
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

const LUA_FILES = join(ROOT, 'src', 'redis', 'lua-files.ts')

/** Whether it is the module that reads the Lua of the check-out, which is replaced. */
export function isEmbedded(id: string): boolean {
  return id === LUA_FILES
}

/**
 * The plugin for builds: of the package, and of the programs that tests start. With the texts inside, a program can be
 * bundled as well.
 */
export const embedded = {
  name: 'embedded-files',
  load(id: string) {
    if (!isEmbedded(id)) return undefined
    // A quarter of their length; a program that sends no scripts does not unpack them.
    const packed = brotliCompressSync(JSON.stringify(luaTexts())).toString('base64')
    const code = `
import { brotliDecompressSync } from 'node:zlib'
const packed = '${packed}'
let texts
export function readLuaFile(file) {
  texts ??= JSON.parse(brotliDecompressSync(Buffer.from(packed, 'base64')).toString())
  return texts[file + '.lua']
}`
    return { code, moduleType: 'js' as const }
  },
}
