--[[
  Deletes the state of a key of a limit, and lifts its block.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
  Returns 1 if there was any, else 0.
]]
local turns = use 'limits/turns'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'

local blocked = redis.call('ZREM', KEYS[1] .. ':blocks', KEYS[2])
redis.call('ZREM', KEYS[1] .. ':keys', KEYS[2])
-- Jobs that were charged before it refund nothing (feedback/settling). Parts of a spread limit, which queues cannot
-- share, have no definition.
if redis.call('HEXISTS', KEYS[1], 'definition') == 1 then redis.call('HSET', KEYS[1], 'resetAt', as_text.us(redis_now())) end
turns.key_freed(KEYS[1], KEYS[2], redis_now())
return math.min(1, redis.call('UNLINK', KEYS[2], KEYS[2] .. '~waiting') + blocked)
