import { expect, test } from 'vitest'
import { LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const S = 1_000_000
const MODE_FIELDS = ['redis_mode', 'server_mode']
const NEVER = 'master_replid2:0000000000000000000000000000000000000000\r\n'
const PROMOTED = 'master_replid2:8f1b2c3d4e5f60718293a4b5c6d7e8f901234567\r\n'

/** Whether the meter detects a move with the given INFO of Redis, and of Valkey, which names its mode differently; the meter was last written at 1000 s. */
async function moved(nowS: number, uptimeS: number, mode: string, replication: string): Promise<boolean[]> {
  const text = `
    local meter = use 'meter/meter'
    redis = setmetatable({
      call = function(command, section) return section == 'server' and ARGV[1] or ARGV[2] end,
    }, { __index = redis })
    local m = { run = 'before', seen = ${1000 * S}, origin = 0, now = ${nowS * S} }
    meter.recover(m, { on_state_loss = 'burst' })
    return m.loss and 0 or 1`
  const lua = new LuaComposer(readLuaFile).text(text)
  const servers = MODE_FIELDS.map(
    (field) => `${field}:${mode}\r\nrun_id:abc\r\nuptime_in_seconds:${uptimeS}\r\nuptime_in_days:0\r\n`,
  )
  return Promise.all(servers.map(async (server) => (await redis.client().eval(lua, 0, server, replication)) === 1))
}

test.each([
  ['a node that ran all the time, of a cluster', true, 1001, 500, 'cluster', NEVER],
  ['long after', true, 9000, 8500, 'cluster', NEVER],
  ['no cluster: another Redis at the same address', false, 1001, 500, 'standalone', NEVER],
  ['it was started after the last write', false, 1010, 5, 'cluster', NEVER],
  ['it was started in the same second', false, 1001, 1, 'cluster', NEVER],
  ['it was a replica, which may have missed writes', false, 1001, 500, 'cluster', PROMOTED],
  ['it does not say', false, 1001, 500, 'cluster', ''],
] as const)(
  'another run of Redis has lost nothing where a slot moved: %s: %s',
  async (_what, is, now, up, mode, said) => {
    expect(await moved(now, up, mode, said)).toEqual([is, is])
  },
)
