/** A line with which a file says which module it uses, and by which name. */
const USE = /^[ \t]*local (\w+) = use '([\w/-]+)'[ \t]*$/gm

/** Comments and strings, in which names mean nothing; and names that are neither fields nor keys of a table. */
const TOKENS =
  /--\[\[[\s\S]*?\]\]|--[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?<![\w:]|(?<!\.)\.)([A-Za-z_]\w*)\b(?!\s*=(?!=))/g

/** A text in which the names of modules are resolved, and the modules that it names. */
interface Resolved {
  readonly text: string
  readonly uses: readonly string[]
}

/**
 * Composes scripts of modules: files of `lua/` that return what they define. A script has all that it may use; each is
 * made when it is first used, once a call. So a call makes only functions that it needs, and a module may use one that
 * uses it.
 */
export class LuaComposer {
  readonly #readLua: (file: string) => string
  readonly #resolved = new Map<string, Resolved>()

  /** @param readLua the text of a file of `lua/`, by its path without the ending; of `bullmq/`, a script of BullMQ */
  constructor(readLua: (file: string) => string) {
    this.#readLua = readLua
  }

  /** The script of a file of `lua/`. */
  file(path: string): string {
    return this.text(this.#readLua(path))
  }

  text(text: string): string {
    const main = resolve(text)
    const modules = new Map<string, string>()
    const add = (uses: readonly string[]) => {
      for (const path of uses) {
        if (modules.has(path)) continue
        const module = this.#module(path)
        modules.set(path, module.text)
        add(module.uses)
      }
    }
    add(main.uses)
    if (modules.size === 0) return main.text
    const made = [...modules].map(([path, body]) => `${nameOf(path)} = function()\n${body}\nend`)
    return `${BEGIN}${made.join(',\n')}${END}${main.text}`
  }

  #module(path: string): Resolved {
    const known = this.#resolved.get(path)
    if (known) return known
    const module = resolve(this.#readLua(path))
    this.#resolved.set(path, module)
    return module
  }
}

// `redis` is a variable, which is found faster than a global one and which a simulation replaces.
const BEGIN = 'local redis, modules = redis, {}\nlocal make = {\n'
const END = `
}
setmetatable(modules, { __index = function(all, name)
local module = make[name]()
all[name] = module
return module
end })
`

function nameOf(path: string): string {
  return path.replaceAll(/\W/g, '_')
}

function resolve(text: string): Resolved {
  const names = new Map<string, string>()
  const uses: string[] = []
  const own = text.replaceAll(USE, (_line, name: string, path: string) => {
    names.set(name, `modules.${nameOf(path)}`)
    uses.push(path)
    return ''
  })
  if (names.size === 0) return { text, uses }
  return { text: own.replaceAll(TOKENS, (token, name?: string) => (name && names.get(name)) ?? token), uses }
}
