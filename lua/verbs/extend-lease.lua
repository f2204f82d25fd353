--[[
  Extends a lease: it lasts for its full duration from now.
  KEYS
    [1]  the state of the key
  ARGV
    [1]  the lease
    [2]  its cost
    [3]  how long a lease lasts, µs
  Returns when it expires (µs), 0 if it has expired: then nothing is held any more.
]]
local as_text = use 'redis/as-text'
local keep_key = use 'redis/keep-key'
local redis_now = use 'redis/redis-now'

local now = redis_now()
local ends = now + tonumber(ARGV[3])
if (tonumber(redis.call('ZSCORE', KEYS[1], '1 ' .. ARGV[1])) or 0) <= now then return 0 end
for i = 1, tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], as_text.us(ends), i .. ' ' .. ARGV[1]) end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
keep_key(KEYS[1], math.ceil((last - now) / 1000) + 1000)
return ends
