import { readdirSync, readFileSync } from 'node:fs'
import luaparse from 'luaparse'
import { describe, expect, test } from 'vitest'
import { captureBullmqScripts } from '../src/redis/bullmq-scripts.ts'

const LUA = new URL('../lua/', import.meta.url)
const files = readdirSync(LUA, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.lua'))
  .map((file) => file.replaceAll('\\', '/').replace('.lua', ''))
const modules = files.filter((file) => !file.startsWith('verbs/'))
/** The scripts of BullMQ, and `original`: each that a file is composed around, in turn. */
const ofBullmq = new Set(['original', ...captureBullmqScripts().scripts.keys()].map((name) => `bullmq/${name}`))
const textOf = (file: string) => readFileSync(new URL(`${file}.lua`, LUA), 'utf8')

/** What Redis gives to every script. */
const GLOBALS = new Set([
  ...['_G', 'error', 'ipairs', 'next', 'pairs', 'pcall', 'rawget', 'select', 'setmetatable', 'tonumber', 'tostring'],
  ...['type', 'unpack', 'xpcall', 'cjson', 'cmsgpack', 'math', 'redis', 'string', 'struct', 'table'],
])
/** What a script has besides. */
const OF_SCRIPTS = ['KEYS', 'ARGV']
/** The module that replaces `redis`, in simulations. */
const VIRTUAL = 'simulate/virtual'

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
    expect(text).not.toMatch(/string\.format\('[^']*%d/)
  })

  test('gives no other meaning to the name of a module, nor to what Redis gives', () => {
    expect(shadowed).toEqual([])
    expect(assigned).toEqual(file === VIRTUAL ? ['redis'] : [])
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

test('every module is used', () => {
  const used = new Set(files.flatMap((file) => [...namesOf(textOf(file)).uses.values()]))
  // What src/redis/scripts.ts puts around the scripts of BullMQ.
  const around = ['ends/retried', 'groups/priority', 'limits/keep-places']
  expect(modules.filter((file) => !used.has(file) && !around.includes(file))).toEqual([])
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
