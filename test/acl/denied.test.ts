import { afterEach, beforeEach, expect, test } from 'vitest'
import { ROLES } from './roles.ts'
import { useAclRedis } from './support.ts'

const redis = useAclRedis()
const { prefix, limits } = redis
const KEY = `${prefix}:q:wait`
/** Within a script, Redis 7 and later ones say it in other ways. */
const DENIED = /^NOPERM|The user executing the script can't|^ERR ACL failure in script/
const FOREIGN = 'somebody-else:q:wait'

beforeEach(async () => {
  await redis.admin.flushall()
  await redis.admin.mset(`${prefix}:q:id`, 1, FOREIGN, 1)
})
afterEach(async () => expect(await redis.admin.get(FOREIGN)).toBe('1'))

/** What nobody of Sluice may do. */
const NOBODY: readonly (readonly string[])[] = [
  ...[
    ['FLUSHALL'],
    ['FLUSHDB'],
    ['KEYS', '*'],
    ['CONFIG', 'SET', 'appendonly', 'no'],
    ['CONFIG', 'GET', 'requirepass'],
    ['SHUTDOWN'],
  ],
  ...[
    ['SCRIPT', 'FLUSH'],
    ['SCRIPT', 'KILL'],
    ['CLIENT', 'KILL', 'TYPE', 'normal'],
    ['MONITOR'],
    ['REPLICAOF', 'NO', 'ONE'],
  ],
  ...[
    ['ACL', 'SETUSER', 'default', 'on'],
    ['ACL', 'LIST'],
    ['ACL', 'GETUSER', 'default'],
    ['MODULE', 'LIST'],
    ['MIGRATE', 'h', '1', KEY, '0', '1'],
  ],
  ...[['FUNCTION', 'FLUSH'], ['BGSAVE'], ['SWAPDB', '0', '1'], ['RANDOMKEY'], ['DBSIZE'], ['PSUBSCRIBE', '*']],
  ...[
    ['GET', FOREIGN],
    ['DEL', FOREIGN],
    ['SET', FOREIGN, '2'],
    ['HGETALL', FOREIGN],
    ['LLEN', FOREIGN],
  ],
  ...[
    ['LMOVE', FOREIGN, KEY, 'LEFT', 'LEFT'],
    ['PUBLISH', 'somebody-else', 'x'],
    ['SUBSCRIBE', 'somebody-else'],
  ],
  ...[['EVAL', "return redis.call('SET', KEYS[1], '2')", '1', FOREIGN]],
  ...[
    ['FUNCTION', 'KILL'],
    ['FUNCTION', 'RESTORE', 'x'],
  ],
  // Not named as a key: the check is made at the call.
  ...[['EVAL', `return redis.call('SET', '${FOREIGN}', '2')`, '0']],
  ...[['EVAL', `return redis.call('HSET', '${limits}:modes:x', 'a', 'b')`, '0']],
]

test.each(ROLES.flatMap((role) => NOBODY.map((command) => [role, command] as const)))(
  'a %s may not %j',
  async (role, [name, ...args]) => {
    await expect(redis.client(role).call(name as string, ...args)).rejects.toThrow(DENIED)
  },
)

const MANAGING = [
  ['SCAN', '0'],
  ['ACL', 'WHOAMI'],
  ['FUNCTION', 'LIST'],
  // Whoever may load a library may replace it, and so run code with the rights of all that call it.
  ['FUNCTION', 'LOAD', 'REPLACE', "#!lua name=mine\nredis.register_function('mine', function() end)"],
  ['FUNCTION', 'DELETE', 'mine'],
]
test.each(
  ROLES.filter((role) => role !== 'operator').flatMap((role) => MANAGING.map((command) => [role, command] as const)),
)('a %s may not %j, an operator may', async (role, [name, ...args]) => {
  await expect(redis.client(role).call(name as string, ...args)).rejects.toThrow('NOPERM')
  await redis.client('operator').call(name as string, ...args)
})

test.each([
  ...[
    ['SET', KEY, '1'],
    ['HSET', KEY, 'a', 'b'],
    ['DEL', `${prefix}:q:id`],
    ['LPUSH', KEY, 'x'],
    ['XADD', KEY, '*', 'a', 'b'],
  ],
  ...[
    ['ZADD', KEY, '1', 'x'],
    ['EXPIRE', `${prefix}:q:id`, '1'],
    ['BZPOPMIN', KEY, '0'],
    ['SADD', KEY, 'x'],
  ],
  ...[
    ['EVAL', 'return 1', '0'],
    ['EVAL_RO', `return redis.call('SET', '${KEY}', '1')`, '0'],
    ['EVALSHA', 'a'.repeat(40), '0'],
    ['FCALL', 'f', '0'],
    ['MULTI'],
  ],
  ...[
    ['PUBLISH', `${prefix}:q:meta:wake`, 'x'],
    ['SUBSCRIBE', `${prefix}:q:meta:wake`],
  ],
])('an observer writes nothing: %s %s', async (name, ...args) => {
  await expect(redis.client('observer').call(name as string, ...args)).rejects.toThrow(DENIED)
})

test('a user for limits reads and writes no queue', async () => {
  const limiter = redis.client('limiter')
  for (const [name, ...args] of [
    ['GET', `${prefix}:q:id`],
    ['SET', `${prefix}:q:id`, '2'],
    ['DEL', `${prefix}:q:id`],
  ]) {
    await expect(limiter.call(name as string, ...args)).rejects.toThrow('NOPERM')
  }
  const write = `return redis.call('SET', '${prefix}:q:id', '2')`
  await expect(limiter.call('EVAL', write, '0')).rejects.toThrow(DENIED)
  expect(await redis.admin.get(`${prefix}:q:id`)).toBe('1')
})

test('a wrong password is refused', async () => {
  const { admin } = redis
  for (const role of ROLES) {
    const answer = admin.call('AUTH', `sluice-${role}`, 'wrong')
    await expect(answer).rejects.toThrow('WRONGPASS')
  }
})
