import { expect, test } from 'vitest'
import { captureBullmqScripts } from '../src/redis/bullmq-scripts.ts'
import { ScriptSet } from '../src/redis/scripts.ts'
import { useRedis } from './support/redis.ts'

const client = useRedis(import.meta.url).client()
const set = new ScriptSet(captureBullmqScripts(), 'room')
const scripts = [...set.definitions()].map(([name, { lua }]) => [name, lua] as const)
scripts.push(['admit-flow', set.admitFlowText()])

/** A function of Lua has at most 200 local names, and the main part of a script is one. */
const SPARE = 32
const more = `local ${Array.from({ length: SPARE }, (_, i) => `spare_${i}`).join(', ')}`

test.each(scripts)('%s has room for more names', async (_name, lua) => {
  // Some run in a function, which then is what has to have room.
  const [, before = '', rest = lua] = /^([\s\S]*?\nlocal function run\(\)\n)([\s\S]*)$/.exec(lua) ?? []
  await expect(client.script('LOAD', `${before}${more}\n${rest}`)).resolves.toHaveLength(40)
})
