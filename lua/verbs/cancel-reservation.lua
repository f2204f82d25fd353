--[[
  Gives back a reserved turn. Its charge is refunded only if nothing was charged after it: another slot could depend on
  it.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
    [3]  the waiting callers
  ARGV
    [1]  the definition, JSON
    [2]  cost
    [3]  the waiting caller
    [4]  stamp of the state after the reservation
  Returns 1 if the charge was refunded, else 0.
]]
local limit_checks = use 'limits/checks'
local limit_state = use 'limits/state'
local redis_now = use 'redis/redis-now'

local now = redis_now()
local l = limit_checks.read(KEYS[1], ARGV[1], now)
if redis.call('ZREM', KEYS[3], ARGV[3]) == 0 then return 0 end
local place = limit_checks.place(l, KEYS[2], now)
if l.mode == 'off' or limit_state.stamp(place, l.algorithm) ~= ARGV[4] then return 0 end
limit_state.undo(l, l.verbs.open(place, l, now), tonumber(ARGV[2]))
return 1
