import { readFileSync } from 'node:fs'

const LUA_FOLDER = new URL('../../lua/', import.meta.url)

/** The text of a file of `lua/`. The package's build replaces this module by one that contains the texts. */
export function readLuaFile(file: string): string {
  return readFileSync(new URL(`${file}.lua`, LUA_FOLDER), 'utf8')
}
