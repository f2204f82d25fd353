/** Suffix of the function that drops its last key, one that never exists (`absentKey`). */
export const ON_CLUSTER = '_cluster'

/** A line with which a file uses a module, under a name. */
const USE = /^[ \t]*local (\w+) = use '([\w/-]+)'[ \t]*$/gm
/** The same within a line, for insertions into texts of BullMQ. */
const USE_HERE = /\buse '([\w/-]+)'/.source

/** Comments and strings, in which names mean nothing. */
const UNREAD = /--\[\[[\s\S]*?\]\]|--[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/.source

/** A bare text in which the names of modules are resolved, and the modules that it names. */
interface Resolved {
  readonly text: string
  readonly uses: readonly string[]
}

/** A function of a library. */
export interface LibraryFunction {
  readonly name: string
  /** As that of a script. */
  readonly text: string
  readonly flags: readonly string[]
}

/**
 * Composes scripts from modules: files of `lua/` that return what they define. A script contains all modules that it
 * may use. Each is created at its first use: in a text once per call, in a library once, unless a mark declares it as
 * state of a call. So a call creates only the functions that it needs, and two modules may use each other.
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
    const modules = this.#modulesOf([main])
    if (modules.size === 0) return main.text
    return `local redis, modules = redis, {}\n${makersOf(modules)}${FOUND_BY_USE}${main.text}`
  }

  /** A library of Redis Functions. */
  library(name: string, functions: readonly LibraryFunction[]): string {
    const mains = functions.map(({ text }) => resolve(text))
    const modules = this.#modulesOf(mains)
    const ofCalls = [...modules].filter(([, { text }]) => OF_CALL.test(text)).map(([path]) => `modules.${nameOf(path)}`)
    return [
      `#!lua name=${name}`,
      LIBRARY_BEGIN,
      makersOf(modules),
      `local function begin()
if not modules then
redis, modules = of_calls(), {}
${FOUND_BY_USE}end
${ofCalls.length > 0 ? `${ofCalls.join(', ')} = nil` : ''}
end`,
      ...functions.map((it, i) => {
        const flags = it.flags.map((flag) => `'${flag}'`).join(', ')
        return `register('${it.name}', { ${flags} }, function(KEYS, ARGV)\nbegin()\n${mains[i]?.text}\nend)`
      }),
    ].join('\n')
  }

  #modulesOf(mains: readonly Resolved[]): ReadonlyMap<string, Resolved> {
    const modules = new Map<string, Resolved>()
    const add = (uses: readonly string[]) => {
      for (const path of uses) {
        if (modules.has(path)) continue
        const module = this.#module(path)
        modules.set(path, module)
        add(module.uses)
      }
    }
    for (const { uses } of mains) add(uses)
    return modules
  }

  #module(path: string): Resolved {
    const known = this.#resolved.get(path)
    if (known) return known
    const module = resolve(this.#readLua(path))
    this.#resolved.set(path, module)
    return module
  }
}

/** A module with state of one call. */
const OF_CALL = /^--- @call$/m

// `redis` is a local variable, which is found faster than a global one and which a simulation replaces.
const FOUND_BY_USE = `setmetatable(modules, { __index = function(all, name)
local module = make[name]()
all[name] = module
return module
end })
`

// While a library is loaded there is another `redis`, which only registers.
const LIBRARY_BEGIN = `local registering = redis
local function of_calls() return redis end
local function register(name, flags, run)
registering.register_function({ function_name = name, flags = flags, callback = run })
registering.register_function({
function_name = name .. '${ON_CLUSTER}', flags = flags,
callback = function(KEYS, ARGV)
KEYS[#KEYS] = nil
return run(KEYS, ARGV)
end,
})
end
local redis, modules`

function makersOf(modules: ReadonlyMap<string, Resolved>): string {
  const made = [...modules].map(([path, { text }]) => `${nameOf(path)} = function()\n${text}\nend`)
  return `local make = {\n${made.join(',\n')}\n}\n`
}

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
  // Neither fields nor keys of a table.
  const used = `(?<![\\w:]|(?<!\\.)\\.)(${[...names.keys()].join('|') || '(?!)'})\\b(?!\\s*=(?!=))`
  const tokens = new RegExp(`${UNREAD}|${USE_HERE}|${used}`, 'g')
  const code = own.replaceAll(tokens, (token, path?: string, name?: string) => {
    if (path) uses.push(path)
    if (path) return `modules.${nameOf(path)}`
    return name ? (names.get(name) as string) : bareToken(token)
  })
  return { text: withoutIndents(code), uses }
}

const UNREAD_TOKENS = new RegExp(UNREAD, 'g')

/**
 * A script or module without comments, except marks, and without indents: a third of its size, which every server would
 * keep.
 */
export function bareLua(text: string): string {
  return withoutIndents(text.replaceAll(UNREAD_TOKENS, bareToken))
}

function bareToken(token: string): string {
  return token.startsWith('--') && !token.startsWith('--- @') ? '' : token
}

/** No string of a script spans lines. */
function withoutIndents(code: string): string {
  return code.replaceAll(/\s*\n\s*/g, '\n').trim()
}
