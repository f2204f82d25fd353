import { readdirSync, readFileSync } from 'node:fs'
import luaparse from 'luaparse'
import { describe, expect, test } from 'vitest'
import { captureBullmqScripts } from '../src/redis/bullmq-scripts.ts'

const LUA = new URL('../lua/', import.meta.url)
const files = readdirSync(LUA, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.lua'))
  .map((file) => file.replaceAll('\\', '/').replace('.lua', ''))
const modules = files.filter((file) => !file.startsWith('verbs/'))
const ofBullmq = new Set([...captureBullmqScripts().scripts.keys()].map((name) => `bullmq/${name}`))
const textOf = (file: string) => readFileSync(new URL(`${file}.lua`, LUA), 'utf8')

/** What Redis gives to every script. */
const GLOBALS = new Set([
  ...[
    '_G',
    'error',
    'getmetatable',
    'ipairs',
    'next',
    'pairs',
    'pcall',
    'rawget',
    'select',
    'setmetatable',
    'tonumber',
  ],
  ...['tostring', 'type', 'unpack', 'xpcall', 'cjson', 'cmsgpack', 'math', 'redis', 'string', 'struct', 'table'],
])
/** What a script has besides. */
const OF_SCRIPTS = ['KEYS', 'ARGV']
/** The module that writes times in parts of less than 32 bits. */
const AS_TEXT = 'redis/as-text'
/** The modules that replace `redis`: in simulations, and for views. */
const REPLACING = ['simulate/virtual', 'redis/unwritten']

const USE = /^local (\w+) = use '([\w/-]+)'$/gm

interface Names {
  /** By the name in the file: the path of the module. */
  readonly uses: ReadonlyMap<string, string>
  readonly free: readonly string[]
  /** Those of modules that something else in the file has too. */
  readonly shadowed: readonly string[]
  readonly assigned: readonly string[]
}

function namesOf(text: string): Names {
  const uses = new Map([...text.matchAll(USE)].map(([, name, path]) => [name as string, path as string]))
  const tree = luaparse.parse(text.replaceAll(USE, ''), { luaVersion: '5.1', scope: true })
  const [shadowed, assigned] = [new Set<string>(), new Set<string>()]
  const walk = (node: unknown): void => {
    if (Array.isArray(node)) node.forEach(walk)
    if (typeof node !== 'object' || node === null) return
    const { type, name, isLocal, variables } = node as { [field: string]: unknown }
    if (type === 'Identifier' && isLocal === true && uses.has(String(name))) shadowed.add(String(name))
    if (type === 'AssignmentStatement')
      for (const variable of variables as luaparse.Identifier[])
        if (variable.type === 'Identifier' && !(variable as { isLocal?: boolean }).isLocal) assigned.add(variable.name)
    Object.values(node).forEach(walk)
  }
  walk(tree.body)
  const free = (tree as unknown as { readonly globals: readonly luaparse.Identifier[] }).globals
  return { uses, free: free.map(({ name }) => name), shadowed: [...shadowed], assigned: [...assigned] }
}

describe.each(files)('%s', (file) => {
  const text = textOf(file)
  const { uses, free, shadowed, assigned } = namesOf(text)

  test('names what it uses, and uses what it names', () => {
    const known = new Set([...GLOBALS, ...uses.keys(), ...(modules.includes(file) ? [] : OF_SCRIPTS)])
    expect(free.filter((name) => !known.has(name))).toEqual([])
    expect([...uses.keys()].filter((name) => !free.includes(name))).toEqual([])
    expect([...uses.values()].filter((path) => !modules.includes(path) && !ofBullmq.has(path))).toEqual([])
    expect(text.match(/\buse '/g) ?? []).toHaveLength(uses.size)
  })

  test('writes no number with %d, which has 32 bits where Redis is compiled for as many, as in the emulator', () => {
    if (file === AS_TEXT) return
    expect(text).not.toMatch(/string\.format\('[^']*%d/)
  })

  test('gives no other meaning to the name of a module, nor to what Redis gives', () => {
    expect(shadowed).toEqual([])
    expect(assigned).toEqual(REPLACING.includes(file) ? ['redis'] : [])
  })

  test('uses modules in the order of their paths, at its beginning, by their names', () => {
    const paths = [...uses.values()]
    expect(paths).toEqual(paths.toSorted())
    const [, block = ''] = /^(?:--\[\[[\s\S]*?\n\]\]\n)?((?:local \w+ = use '[^\n]*\n)*)/.exec(text) ?? []
    expect(block.split('\n').filter(Boolean)).toHaveLength(uses.size)
    expect([...uses].filter(([name, path]) => !namesFor(path).includes(name))).toEqual([])
  })
})

/** That of its file, or `group_hooks` of groups/hooks. */
function namesFor(path: string): string[] {
  const snake = path.replaceAll('-', '_').replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  const [room = '', name = ''] = snake.split('/')
  return [name, `${room.replace(/s$/, '')}_${name}`]
}

test.each(modules)('%s returns what it defines', (file) => {
  const { body } = luaparse.parse(textOf(file).replaceAll(USE, ''), { luaVersion: '5.1' })
  expect(body.at(-1)?.type).toBe('ReturnStatement')
})

/** What outlives a call in a library, by design: the same in every call of one run of Redis. */
const CACHES: readonly string[] = ['ends/kind', 'groups/lane-keys', 'redis/commands-of', 'redis/run-id', 'shape/parsed']

/** The top-level names of a file, those of modules included, whose values or fields a function changes. */
function changedNames(text: string): string[] {
  const { uses } = namesOf(text)
  const tree = luaparse.parse(text.replaceAll(USE, ''), { luaVersion: '5.1', scope: true })
  const own = new Set(uses.keys())
  for (const statement of tree.body) {
    if (statement.type === 'LocalStatement') for (const { name } of statement.variables) own.add(name)
  }
  const changed = new Set<string>()
  const change = (node: luaparse.Expression, inner: ReadonlySet<string>) => {
    let root = node
    while (root.type === 'MemberExpression' || root.type === 'IndexExpression') root = root.base
    if (root.type === 'Identifier' && own.has(root.name) && !inner.has(root.name)) changed.add(root.name)
  }
  const walk = (node: unknown, inner: ReadonlySet<string> | undefined): void => {
    if (Array.isArray(node)) for (const one of node) walk(one, inner)
    if (typeof node !== 'object' || node === null || Array.isArray(node)) return
    const typed = node as luaparse.Node
    let names = inner
    if (typed.type === 'FunctionDeclaration') {
      names = new Set([...(inner ?? []), ...variablesOf(typed)])
    }
    if (names && typed.type === 'AssignmentStatement') for (const variable of typed.variables) change(variable, names)
    if (names && typed.type === 'CallExpression' && /^table\.(insert|remove|sort)$/.test(calleeOf(typed)))
      change(typed.arguments[0] as luaparse.Expression, names)
    for (const value of Object.values(node)) walk(value, names)
  }
  walk(tree.body, undefined)
  return [...changed].toSorted()
}

function calleeOf({ base }: luaparse.CallExpression): string {
  if (base.type !== 'MemberExpression' || base.base.type !== 'Identifier') return ''
  return `${base.base.name}.${base.identifier.name}`
}

/** The parameters and variables of a function, without those of functions inside it. */
function variablesOf(of: luaparse.FunctionDeclaration): string[] {
  const names = of.parameters.flatMap((one) => (one.type === 'Identifier' ? [one.name] : []))
  const walk = (node: unknown): void => {
    if (Array.isArray(node)) node.forEach(walk)
    if (typeof node !== 'object' || node === null || Array.isArray(node)) return
    const typed = node as luaparse.Node
    if (typed.type === 'FunctionDeclaration') return
    if (typed.type === 'LocalStatement' || typed.type === 'ForGenericStatement')
      for (const { name } of typed.variables) names.push(name)
    if (typed.type === 'ForNumericStatement') names.push(typed.variable.name)
    Object.values(node).forEach(walk)
  }
  walk(of.body)
  return names
}

describe('what a library keeps from one call to the next', () => {
  const ofCalls = modules.filter((file) => /^--- @call$/m.test(textOf(file)))
  const simulated = (file: string) => file.startsWith('simulate/')

  test('is no state: a module that a call changes is marked as of a call', () => {
    const changes = modules.flatMap((file) => {
      const { uses } = namesOf(textOf(file))
      return changedNames(textOf(file)).map((name) => uses.get(name) ?? file)
    })
    const changed = new Set(changes.filter((file) => !simulated(file) && !CACHES.includes(file)))
    expect([...changed].filter((file) => !ofCalls.includes(file))).toEqual([])
  })

  test('is no module that a verb changes either', () => {
    for (const file of files.filter((file) => file.startsWith('verbs/') && file !== 'verbs/simulate')) {
      const { uses } = namesOf(textOf(file))
      const text = [...textOf(file).matchAll(USE)].map(([line]) => line).join('\n')
      const rest = textOf(file).replaceAll(USE, '')
      const modulesChanged = changedNames(`${text}\nlocal function verb(KEYS, ARGV)\n${rest}\nend`)
      const paths = modulesChanged.map((name) => uses.get(name) as string)
      expect(paths.filter((path) => !ofCalls.includes(path))).toEqual([])
    }
  })

  test('is no name for a module of a call', () => {
    // A top-level value of one module that is a part of another would be that of the first call.
    const kept = modules.flatMap((file) => {
      const { uses } = namesOf(textOf(file))
      const names = [...uses].filter(([, path]) => ofCalls.includes(path)).map(([name]) => name)
      const parts = names.filter((name) =>
        new RegExp(`^(?:local )?[\\w.]+ = .*(?<![\\w.])${name}\\b`, 'm').test(textOf(file).replaceAll(USE, '')),
      )
      return ofCalls.includes(file) ? [] : parts.map((name) => `${file}: ${name}`)
    })
    expect(kept).toEqual([])
  })

  test('such changes are found in functions, and not where a variable has the name', () => {
    expect(changedNames('local a = {}\nlocal function f() a.b = 1 end\nreturn f')).toEqual(['a'])
    expect(changedNames('local a\nlocal function f() a = 1 end\nreturn f')).toEqual(['a'])
    expect(changedNames('local a = {}\nlocal function f() table.insert(a, 1) end\nreturn f')).toEqual(['a'])
    expect(changedNames('local a = {}\nlocal function f(a) a.b = 1 end\nreturn f')).toEqual([])
    expect(changedNames('local a = {}\na.b = 1\nfunction a.c() local a = {} a.d = 1 end\nreturn a')).toEqual([])
    expect(
      changedNames(
        "local call_state = use 'redis/call-state'\nlocal function f() call_state.touched = {} end\nreturn f",
      ),
    ).toEqual(['call_state'])
  })
})

test('every module is used', () => {
  const used = new Set(files.flatMap((file) => [...namesOf(textOf(file)).uses.values()]))
  expect(modules.filter((file) => !used.has(file))).toEqual([])
})

describe('the check itself', () => {
  const USES = "local bucket = use 'meter/bucket'\n"

  test('finds a name that nothing defines', () => {
    expect(namesOf('return bucket.ceil(1)').free).toEqual(['bucket'])
  })

  test('finds a parameter, a variable and a function named as a module', () => {
    for (const code of ['local function f(bucket) end', 'for bucket = 1, 2 do end', 'do local bucket = 1 end'])
      expect(namesOf(`${USES}${code}`).shadowed).toEqual(['bucket'])
  })

  test('finds an assignment to what is not declared, and none to a field', () => {
    expect(namesOf(`${USES}local a = 1\na, redis = 2, 3\nbucket.x = 1`).assigned).toEqual(['redis'])
  })
})
