import { readFileSync } from 'node:fs'
import { LuaComposer } from '../../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../../src/redis/lua-files.ts'
import { heldExpiries } from '../../model/held-expiries.ts'

/** The clock is at the time of each operation. */
const HELD: Readonly<Record<string, string>> = {
  'held-clock': `local held_clock = {}
redis, held_clock.expire = ${heldExpiries({ nowUs: 'held_clock.now', index: "KEYS[1] .. ':expiries'" })}
return held_clock`,
  'redis/redis-now': "local held_clock = use 'held-clock'\nreturn function() return held_clock.now end",
}
const composer = new LuaComposer((file) => HELD[file] ?? readLuaFile(file))

/** The text of `replay.lua` with all modules. */
export const replayText = composer.text(readFileSync(new URL('replay.lua', import.meta.url), 'utf8'))
