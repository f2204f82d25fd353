--[[
  Charges a key of a limit unconditionally, or refunds units.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
  ARGV
    [1]  the definition, JSON
    [2]  units; below 0 they are refunded
    [3]  id of this call: sent again within a minute, it changes nothing
  Returns the reply of decide, for one unit.
]]
--- @include "lib/limits"
--- @include "lib/limit-place"
local now = redis_now()
local l = limit_read(KEYS[1], ARGV[1], now)
if l.outdated then return { now, 4, 0, 0, 0 } end

-- Whether this call was sent before and its reply was lost: units that are given back twice would let too much pass.
local AGAIN_MS = 60000
local function was_sent()
  local settled = KEYS[1] .. ':settled'
  redis.call('ZREMRANGEBYSCORE', settled, '-inf', us_text(now - AGAIN_MS * 1000))
  local is_new = redis.call('ZADD', settled, 'NX', us_text(now), ARGV[3]) == 1
  redis.call('PEXPIRE', settled, AGAIN_MS)
  return not is_new
end

local place, shared = limit_place(l, KEYS[2], now)
local s = l.verbs.open(place, l, now)
if l.mode ~= 'off' and not was_sent() then limit_settle(l, s, tonumber(ARGV[2])) end
if tonumber(ARGV[2]) < 0 then queue_limit_call_others(KEYS[1], '') end
local wait = limit_wait_of(l, s, KEYS[2], 1, now)
local reply = { now, (wait <= 0 and 1 or 0) + (shared and 2 or 0) }
limit_tell(l, s, wait, reply, 2)
if not shared then limit_keep_place(l, KEYS[2], now + reply[#reply]) end
return reply
