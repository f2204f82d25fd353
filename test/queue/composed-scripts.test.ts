import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import luaparse from 'luaparse'
import { describe, expect, test } from 'vitest'
import { embedded } from '../../embedded-files.ts'
import { bullmqModule, captureBullmqScripts, divideScript } from '../../src/redis/bullmq-scripts.ts'
import { bareLua, LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { installedScripts, ScriptSet } from '../../src/redis/scripts.ts'
import { useRedis } from '../support/redis.ts'

const client = useRedis(import.meta.url).client()

describe('the module of a script of BullMQ', () => {
  const { scripts } = captureBullmqScripts()
  const REPEATED = ['moveToFinished', 'moveToActive', 'addStandardJob', 'addPrioritizedJob', 'addDelayedJob']

  test.each(REPEATED)('%s, which runs for many jobs, makes its functions once, and nothing of it is lost', (name) => {
    const { lua } = scripts.get(name) as { readonly lua: string }
    const { functions, rest } = divideScript(lua)
    expect(functions).toMatch(/^local function \w+/m)
    expect(rest).not.toMatch(/^local (function \w+|\w+ = function)/m)
    const call = 'local rcall = redis.call'
    expect([...functions.split('\n'), ...rest.split('\n'), call].toSorted()).toEqual(lua.split('\n').toSorted())
  })

  const FUNCTIONS = 'local function double(count)\n  return 2 * count\nend\n'
  const CALL = 'local rcall = redis.call\n'

  test('has what is no function in its order', () => {
    const { functions, rest } = divideScript(
      `${CALL}local id = KEYS[1]\n${FUNCTIONS}local b = double(1)\nreturn rcall(id, b)`,
    )
    expect(functions).toBe(FUNCTIONS.trim())
    expect(rest).toBe('local id = KEYS[1]\nlocal b = double(1)\nreturn rcall(id, b)')
  })

  test.each([
    ['a variable of the rest', 'local id = KEYS[1]\nlocal function f()\n  return id\nend\nreturn f()'],
    ['the second variable of a list', 'local a,\n  id = f()\nlocal function g()\n  return id\nend\nreturn g()'],
    ['the keys', 'local function f()\n  return KEYS[1]\nend\nreturn f()'],
    ['the arguments', 'local f = function ()\n  return ARGV[1]\nend\nreturn f()'],
  ])('makes functions in each run if one uses %s', (_what, lua) => {
    expect(divideScript(CALL + lua)).toEqual({ functions: '', rest: CALL + lua })
  })

  test('knows that a name of the rest may be a parameter, a variable, a field or a word of a text', () => {
    const lua =
      'local id = 1\nlocal function f(id)\n  return id\nend\nlocal function g(a)\n  return a.id, "id"\nend\nreturn f(id)'
    expect(divideScript(CALL + lua).rest).toBe('local id = 1\nreturn f(id)')
  })

  test('runs with the keys, the arguments and the redis of each call', async () => {
    const lua = `${CALL}local function ask(command)\n  return rcall(command) .. ' ' .. rcall("PING")\nend\nreturn ask(ARGV[1])`
    const module = bullmqModule(lua, ["'wait'", "id .. ':lock'"])
    const files: Readonly<Record<string, string>> = {
      'bullmq/ask': module,
    }
    const main = `local ask = use 'bullmq/ask'
      local hooked_redis = use 'redis/hooked-redis'
      local other = { call = function(command) return 'other ' .. command end }
      local hooked = hooked_redis(hooked_redis(other, { SET = string.lower }), { PING = string.lower })
      local function asked(redis, command) return ask.run(redis, {}, { command }) end
      return { asked(other, 'a'), asked({ call = string.lower }, 'B'), asked(hooked, 'SET'), asked(hooked, 'GET'),
        asked(other, 'b'), unpack(ask.keys('q:', '7')) }`
    const text = new LuaComposer((file) => files[file] ?? readLuaFile(file)).text(main)
    expect(await client.eval(text, 0)).toEqual([
      ...['other a other PING', 'b ping', 'set ping', 'other GET ping', 'other b other PING'],
      ...['q:wait', 'q:7:lock'],
    ])
  })
})

describe('modules', () => {
  const files: Readonly<Record<string, string>> = {
    'x/count': 'local count = { n = 0 }\nfunction count.one() count.n = count.n + 1 return count.n end\nreturn count',
    'x/twice': "local count = use 'x/count'\nreturn function() count.one() return count.one() end",
    'x/even': "local odd = use 'x/odd'\nreturn function(n) return n == 0 or odd(n - 1) end",
    'x/odd': "local even = use 'x/even'\nreturn function(n) return n > 0 and even(n - 1) end",
    'x/noted': "redis.call('INCR')\nreturn {}",
  }
  const text = (main: string) => new LuaComposer((file) => files[file] as string).text(main)
  const run = (main: string) => client.eval(text(main), 0)

  test('are made once a call, whoever uses them first', async () => {
    const main = "local count = use 'x/count'\nlocal twice = use 'x/twice'\ncount.one()\nreturn { twice(), count.n }"
    expect([await run(main), await run(main)]).toEqual([
      [3, 3],
      [3, 3],
    ])
  })

  test('that nothing uses in a call are not made', async () => {
    await expect(run("local noted = use 'x/noted'\nreturn noted and 1 or 2")).rejects.toThrow('Wrong number of args')
    expect(await run("local noted = use 'x/noted'\nif false then return noted end\nreturn 'not made'")).toBe('not made')
  })

  test('may use each other', async () => {
    expect(await run("local even = use 'x/even'\nreturn { tostring(even(4)), tostring(even(5)) }")).toEqual([
      'true',
      'false',
    ])
  })

  test('are meant where a name stands by itself, in no comment, text, field or key', () => {
    const main =
      "local count = use 'x/count'\n-- count\nreturn { count = 'count', a = b.count, c = b:count(), d = 1 ..count.n }"
    expect(text(main).split('\n').at(-1)).toBe(
      "return { count = 'count', a = b.count, c = b:count(), d = 1 ..modules.x_count.n }",
    )
  })
})

test('a text is sent without comments and indents, and means the same', () => {
  const program = (lua: string) => luaparse.parse(lua, { luaVersion: '5.1', comments: false })
  const files = readdirSync('lua', { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.lua'))
  const ours = files.map((file) => [file, readLuaFile(file.slice(0, -4))] as const)
  const bullmq = [...captureBullmqScripts().scripts].map(([name, { lua }]) => [name, lua] as const)
  for (const [name, lua] of [...ours, ...bullmq]) {
    const bare = bareLua(lua)
    expect(program(bare), name).toEqual(program(lua))
    expect(bare, name).not.toMatch(/^\s|(?<!-)--(?!- @)/m)
  }
})

test('the scripts of the package are those of the sources', async () => {
  const loaded = await embedded.load(fileURLToPath(new URL('../../src/redis/lua-files.ts', import.meta.url)))
  const { code } = loaded as { readonly code: string }
  const { readLuaFile: readPacked } = await import(
    `data:text/javascript;base64,${Buffer.from(code).toString('base64')}`
  )
  const packed = new ScriptSet(captureBullmqScripts(), 'test', readPacked)
  expect(packed.library.text).toBe(new ScriptSet(captureBullmqScripts(), 'test').library.text)
})

// Whatever puts a job where it waits or runs, takes it from there or deletes it, moves it between the lines of the groups.
test('every script of BullMQ that moves or deletes jobs is sent with the hooks of groups', () => {
  const MOVES = /["'](?:LPUSH|RPUSH|LREM|LTRIM|LSET|RPOPLPUSH|ZADD|ZREM|ZPOPMIN|RENAME|DEL|UNLINK)["']/
  const OTHERS: Readonly<Record<string, string>> = {
    addLog: 'the log of a job',
    drain: 'never sent: drain-part contains it',
    getRateLimitTtl: 'the key of the rate limit',
    pause: 'a list of older versions, which has no groups',
    releaseLock: 'a lock',
    releaseParentIfNoPendingDependencies: 'never sent: add-flow contains it',
    removeDeduplicationKey: 'a key of deduplication',
  }
  const { scripts } = captureBullmqScripts()
  const fileOf = (name: string) => {
    if (/^moveTo(Active|Finished|Delayed)$/.test(name)) return 'exchange'
    return /^add(Standard|Prioritized|Delayed|Parent)Job$|^addJobScheduler$/.test(name) ? 'add' : name
  }
  const sent = installedScripts().texts()
  const moving = [...scripts].filter(
    ([name, { lua }]) => !name.startsWith('relay') && MOVES.test(lua.replaceAll(/--\[\[[\s\S]*?\]\]|--.*$/gm, '')),
  )
  const bare = moving
    .map(([name]) => name)
    .filter((name) => !/modules\.groups_hooks\.(redis|run|adding)\(|groups:handle\(/.test(sent.get(fileOf(name)) ?? ''))
  expect(bare.toSorted()).toEqual(Object.keys(OTHERS))
  expect(sent.get('drain-part')).toContain('modules.groups_hooks.run(')
})
