--[[
  Blocks a key of a limit for a time, whatever its state, or lifts the block. A block is never shortened.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
  ARGV
    [1]  how long, ms; 0 lifts the block
  Returns the end of the block (µs), 0 if there is none.
]]
local limit_control = use 'limits/control'
local turns = use 'limits/turns'
local redis_now = use 'redis/redis-now'

local now, ms = redis_now(), tonumber(ARGV[1])
local ends = limit_control.block(KEYS[1], KEYS[2], now, ms > 0 and now + math.ceil(ms * 1000) or nil)
if ends == 0 then turns.key_freed(KEYS[1], KEYS[2], now) end
return ends
