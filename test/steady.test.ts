import { expect, test } from 'vitest'
import { captureBullmqScripts } from '../src/redis/bullmq-scripts.ts'
import { LuaComposer } from '../src/redis/lua-composer.ts'
import { readLuaFile } from '../src/redis/lua-files.ts'
import { ScriptSet } from '../src/redis/scripts.ts'
import { adminOf, startOwnRedis } from './faults/support/own-redis.ts'
import { useRedis } from './support/redis.ts'

const client = useRedis(import.meta.url).client()
const steady = (script: string) =>
  new LuaComposer(readLuaFile).text(`local steady = use 'redis/steady'\n${script}\nreturn steady(script)`)
/** The speed of the collector, which is changed to read it. */
const speedOf = 'local speed = collectgarbage("setstepmul", 200) collectgarbage("setstepmul", speed)'

async function speedNow(on = client): Promise<unknown> {
  return on.eval(`${speedOf} return speed`, 0)
}

/** The speed within and after a script, and what the script returned. @param collect the collector that it finds */
async function speeds(collect: string): Promise<unknown> {
  const [within, returned] = (await client.eval(
    `local function rawget() return ${collect} end
    ${steady(`local function script()
      ${speedOf}
      return { speed, 'reply' }
    end`)}`,
    0,
  )) as unknown[]
  return { within, returned, after: await speedNow() }
}

/** The collector, while all scripts have so large a heap. */
const withHeap = (kib: number) =>
  `function(what, value) return what == 'count' and ${kib} or collectgarbage(what, value) end`

test('a script of many jobs collects garbage slowly, and leaves the speed as it is by default', async () => {
  expect(await speeds(withHeap(3000))).toEqual({ within: 20, returned: 'reply', after: 200 })
})

test('a large heap, as of a Redis with very many scripts, is collected as fast as always', async () => {
  expect(await speeds(withHeap(33_000))).toEqual({ within: 200, returned: 'reply', after: 200 })
})

test('a Redis without a collector that can be called runs the script', async () => {
  expect(await speeds('nil')).toEqual({ within: 200, returned: 'reply', after: 200 })
})

test.each([
  ["redis.call('GET')", /^ERR Wrong number of args.* script: line \d+$/],
  ['local none = nil + 1', /user_script:\d+: attempt to perform arithmetic on a nil value/],
])('a script that fails, by %s, leaves the default speed and says where', async (fails, error) => {
  const found = `local function rawget() return ${withHeap(3000)} end`
  const script = `${found}\n${steady(`local function script()\n${fails}\nend`)}`
  await expect(client.eval(script, 0)).rejects.toThrow(error)
  expect(await speedNow()).toBe(200)
})

test('a script that is killed leaves the default speed', async () => {
  const { url } = await startOwnRedis({ args: ['--busy-reply-threshold', '1'] })
  const admin = adminOf(url)
  const killed = adminOf(url)
    .eval(steady('local function script() while true do end end'), 0)
    .catch((error: Error) => error.message)
  await expect.poll(() => admin.call('SCRIPT', 'KILL').catch(() => ''), { interval: 5, timeout: 60_000 }).toBe('OK')
  expect(await killed).toContain('killed by user')
  expect(await speedNow(admin)).toBe(200)
})

test('the scripts that start, end, add or give back many jobs are such', () => {
  const set = new ScriptSet(captureBullmqScripts(), 'steady')
  const texts = new Map([...set.definitions()].map(([name, { lua }]) => [name, lua]))
  const isSteady = (lua: string) => lua.endsWith('\nreturn modules.redis_steady(run)')
  const steady = [...texts].filter(([, lua]) => isSteady(lua)).map(([name]) => name)
  expect(steady.toSorted()).toEqual([
    ...['add-bulk', 'drain-part', 'finish-batch', 'finish-batch-groups', 'finish-batch-open', 'give-back'],
    ...['moveToActive', 'report'],
  ])
  expect(isSteady(set.admitFlowText())).toBe(true)
})
