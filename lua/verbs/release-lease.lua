--[[
  Gives a lease back, and wakes callers that wait for one.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
  ARGV
    [1]  the lease
    [2]  its cost
  Returns 1, or 0 if it had expired or was already given back.
]]
local concurrency = use 'limits/concurrency'
local turns = use 'limits/turns'
local redis_now = use 'redis/redis-now'

local held = (tonumber(redis.call('ZSCORE', KEYS[2], '1 ' .. ARGV[1])) or 0) > redis_now()
concurrency.give_back(KEYS[2], ARGV[1], tonumber(ARGV[2]))
turns.key_freed(KEYS[1], KEYS[2], redis_now())
return held and 1 or 0
