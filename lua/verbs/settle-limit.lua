--[[
  Charges a key of a limit unconditionally, or refunds units.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
  ARGV
    [1]  the definition, JSON
    [2]  units; negative ones are refunded
    [3]  id of this call: a resent one changes nothing
    [4]  the latest time to settle (µs): after it nothing is done, and the id is forgotten; '' for in a minute
  Returns the reply of decide, for one unit, where the wait alone says whether it is allowed; {now (µs)} if it was too
  late.
]]
local limit_checks = use 'limits/checks'
local limit_state = use 'limits/state'
local turns = use 'limits/turns'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'

local now, AGAIN_US, FORGOTTEN = redis_now(), 60000000, 10
local ends = tonumber(ARGV[4]) or now + AGAIN_US
if now > ends then return { now } end
local l = limit_checks.read(KEYS[1], ARGV[1], now)
if l.outdated then return { now, 4, 0, 0, 0 } end

-- Whether this call was sent before and its reply was lost: a second refund would let too much pass. Each call removes
-- a few expired ids.
local function was_sent()
  local settled, lasts = KEYS[1] .. ':settled', math.ceil((ends - now) / 1000) + 1
  local over = redis.call('ZRANGEBYSCORE', settled, '-inf', '(' .. as_text.us(now), 'LIMIT', 0, FORGOTTEN)
  if over[1] then redis.call('ZREM', settled, unpack(over)) end
  local is_new = redis.call('ZADD', settled, 'NX', as_text.us(ends), ARGV[3]) == 1
  if redis.call('PTTL', settled) < lasts then redis.call('PEXPIRE', settled, lasts) end
  return not is_new
end

local place, shared = limit_checks.place(l, KEYS[2], now)
local s = l.verbs.open(place, l, now)
if l.mode ~= 'off' and not was_sent() then limit_state.settle(l, s, tonumber(ARGV[2])) end
if tonumber(ARGV[2]) < 0 then turns.key_freed(KEYS[1], KEYS[2], now) end
local wait = limit_checks.wait_of(l, s, KEYS[2], 1, now)
local reply = { now, shared and 2 or 0 }
limit_checks.tell(l, s, wait, reply, 2)
if not shared then limit_checks.keep_place(l, KEYS[2], now + reply[#reply]) end
return reply
