import { readFileSync } from 'node:fs'

const LUA_FOLDER = new URL('../../lua/', import.meta.url)

/** The text of a file of `lua/`. In the package, whose build replaces this module, it holds the texts themselves. */
export function readLuaFile(file: string): string {
  return readFileSync(new URL(`${file}.lua`, LUA_FOLDER), 'utf8')
}
