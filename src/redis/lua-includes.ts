const FILE = '--- @include "([\\w-]+(?:/[\\w-]+)?)"'
const INCLUDE = new RegExp(FILE, 'g')
/** Includes that follow each other. */
const INCLUDES = new RegExp(`^([ \\t]*)${FILE}[ \\t]*(?:\\n\\1${FILE}[ \\t]*)*$`, 'gm')

/**
 * Inserts each included file once, before its first use. Names of files in `lua/lib` are relative to it. What a function
 * includes, by indented lines, is made when it is called, and known only there.
 */
export function resolveIncludes(text: string, readLua: (file: string) => string): string {
  const expand = (source: string, done: Set<string>): string =>
    source.replace(INCLUDES, (lines, indent: string) => {
      const known = indent === '' ? done : new Set(done)
      return [...lines.matchAll(INCLUDE)].map(([, name]) => include(name as string, known)).join('\n')
    })
  const include = (name: string, done: Set<string>): string => {
    const file = name.includes('/') ? name : `lib/${name}`
    if (done.has(file)) return ''
    done.add(file)
    return expand(readLua(file), done)
  }
  return expand(text, new Set())
}
