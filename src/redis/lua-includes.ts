const INCLUDE = /^[ \t]*--- @include "([\w-]+(?:\/[\w-]+)?)"( here)?[ \t]*$/gm

/**
 * Inserts each included file once, before its first use. Names of files in `lua/lib` are relative to it. What a function
 * includes, by lines with `here`, is made when it is called, and known only there.
 */
export function resolveIncludes(text: string, readLua: (file: string) => string): string {
  const expand = (source: string, done: Set<string>): string => {
    let here = { files: done, end: -1 }
    return source.replace(INCLUDE, (line, name: string, isHere: string | undefined, offset: number) => {
      if (isHere) here = { files: offset === here.end + 1 ? here.files : new Set(done), end: offset + line.length }
      return include(name, isHere ? here.files : done)
    })
  }
  const include = (name: string, done: Set<string>): string => {
    const file = name.includes('/') ? name : `lib/${name}`
    if (done.has(file)) return ''
    done.add(file)
    return expand(readLua(file), done)
  }
  return expand(text, new Set())
}
