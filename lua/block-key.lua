--[[
  Blocks a key of a limit for a time, whatever its state says, or lifts the block. A later end is never brought forward.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
  ARGV
    [1]  how long, ms; 0 lifts the block
  Returns when it ends (µs), 0 where there is none.
]]
--- @include "lib/limit-switch"
--- @include "lib/limit-place"
--- @include "lib/clock"
local now, blocks = redis_now(), KEYS[1] .. ':blocks'
redis.call('ZREMRANGEBYSCORE', blocks, '-inf', us_text(now))
if tonumber(ARGV[1]) == 0 then
  redis.call('ZREM', blocks, KEYS[2])
else
  redis.call('ZADD', blocks, 'GT', us_text(now + math.ceil(ARGV[1] * 1000)), KEYS[2])
end
local last = redis.call('ZRANGE', blocks, -1, -1, 'WITHSCORES')[2]
limit_switch_write(KEYS[1], { blocked_until = tonumber(last) or 0 })
queue_limit_call_others(KEYS[1], '')
if last then redis.call('PEXPIRE', blocks, math.ceil((last - now) / 1000) + 1000) end
return tonumber(redis.call('ZSCORE', blocks, KEYS[2]) or 0)
