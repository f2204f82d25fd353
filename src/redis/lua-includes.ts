const INCLUDE = /^[ \t]*--- @include "([\w-]+(?:\/[\w-]+)?)"[ \t]*$/gm

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
