import { expect, test } from 'vitest'
import { captureBullmqScripts } from '../src/redis/bullmq-scripts.ts'
import { LuaComposer } from '../src/redis/lua-composer.ts'
import { readLuaFile } from '../src/redis/lua-files.ts'
import { ScriptSet } from '../src/redis/scripts.ts'
import { useRedis } from './support/redis.ts'

const client = useRedis(import.meta.url).client()
const library = new LuaComposer(readLuaFile).file('lib/steady')

/** The speed of the collector within and after a script, and what the script returned. @param heapKib of all scripts */
async function speeds(heapKib: number): Promise<unknown> {
  const [within, returned, after] = (await client.eval(
    `local real = collectgarbage
    local function collectgarbage(what, value)
      return what == 'count' and ${heapKib} or real(what, value)
    end
    ${library}
    local function script()
      local speed = collectgarbage('setstepmul', 200)
      collectgarbage('setstepmul', speed)
      return speed, 'reply'
    end
    steady_begin()
    local within, returned = steady_end(script())
    return { within, returned, collectgarbage('setstepmul', 200) }`,
    0,
  )) as unknown[]
  return { within, returned, after }
}

test('a script of many jobs collects garbage slowly, and leaves the speed as it is by default', async () => {
  expect(await speeds(3000)).toEqual({ within: 20, returned: 'reply', after: 200 })
})

test('a large heap, as of a Redis with very many scripts, is collected as fast as always', async () => {
  expect(await speeds(66_000)).toEqual({ within: 200, returned: 'reply', after: 200 })
})

test('the scripts that start, end, add or give back many jobs are such', () => {
  const set = new ScriptSet(captureBullmqScripts(), 'steady')
  const texts = new Map([...set.definitions()].map(([name, { lua }]) => [name, lua]))
  const isSteady = (lua: string) => lua.includes('\nsteady_begin()\nreturn steady_end(run())')
  const steady = [...texts].filter(([, lua]) => isSteady(lua)).map(([name]) => name)
  expect(steady.toSorted()).toEqual([
    ...['admit-bulk', 'admit-bulk-fitting', 'admit-bulk-groups', 'drain-part'],
    ...['finish-batch', 'finish-batch-groups', 'finish-batch-open', 'give-back', 'moveToActive', 'report'],
  ])
  expect(isSteady(set.admitFlowText())).toBe(true)
})
