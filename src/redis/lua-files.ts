import { readFileSync } from 'node:fs'

const LUA_FOLDER = new URL('../../lua/', import.meta.url)
const INCLUDE = /^[ \t]*--- @include "([\w-]+(?:\/[\w-]+)?)"[ \t]*$/gm

/** Reads a file of `lua/`, from `src/` and `dist/` alike. */
export function readLuaFile(file: string): string {
  return readFileSync(new URL(`${file}.lua`, LUA_FOLDER), 'utf8')
}

/** Inserts each included file once, before its first use. Names of files in `lua/lib` are relative to it. */
export function resolveIncludes(text: string, readLua: (file: string) => string): string {
  const done = new Set<string>()
  const expand = (source: string): string =>
    source.replace(INCLUDE, (_line, name: string) => {
      const file = name.includes('/') ? name : `lib/${name}`
      if (done.has(file)) return ''
      done.add(file)
      return expand(readLua(file))
    })
  return expand(text)
}
