--[[
  Reserves the next turn of a key for a waiting caller, unless too many wait or it would come too late.
  KEYS
    [1]  the control hash of the limit
    [2]  the state of the key
    [3]  the waiting callers: a sorted set, by their slots (µs)
    [4]  the turn of this caller: a resent call gets the same one
  ARGV
    [1]  the definition, JSON
    [2]  cost
    [3]  the waiting caller
    [4]  how many may wait, '' for any number
    [5]  how many of them do not wait, though their slots are charged like the others'
    [6]  the longest wait, µs, '' for any
    [7]  the latest time to reserve (µs): after it nothing is done, and the turn is forgotten; '' for in a minute
  Returns {now (µs), 'ok' | 'full' | 'late' | 'outdated' (nothing was done), µs until the turn; for 'full' and 'late'
  until a retry makes sense, stamp of the state, units left, µs until all are available again}; {now} if it was too
  late.
]]
local limit_checks = use 'limits/checks'
local limit_state = use 'limits/state'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'

local now, AGAIN_US = redis_now(), 60000000
local ends = tonumber(ARGV[7]) or now + AGAIN_US
if now > ends then return { now } end
local turn_before = redis.call('GET', KEYS[4])
if turn_before then
  local reserved = cmsgpack.unpack(turn_before)
  reserved[3] = math.max(0, reserved[3] - (now - reserved[1]))
  reserved[1] = now
  return reserved
end
local l = limit_checks.read(KEYS[1], ARGV[1], now)
if l.outdated then return { now, 'outdated', 0, '', 0, 0 } end
local waiting = KEYS[3]
local place, shared = limit_checks.place(l, KEYS[2], now)
local s, cost, part = l.verbs.open(place, l, now), tonumber(ARGV[2]), { l = l, offset = 0, blocked = 0 }
if l.mode ~= 'off' then part.offset, part.blocked = l.verbs.earliest(s, l, cost), limit_checks.blocked(l, KEYS[2], now) end
local offset = limit_checks.wait(part)
redis.call('ZREMRANGEBYSCORE', waiting, '-inf', as_text.us(now))
local ahead, most, undelayed = redis.call('ZCARD', waiting), tonumber(ARGV[4]), tonumber(ARGV[5])

local function answer(verdict, us)
  local left, reset = l.verbs.view(s, l)
  local stamp = verdict == 'ok' and limit_state.stamp(place, l.algorithm) or ''
  return { now, verdict, us, stamp, math.max(0, math.floor(left)), math.ceil(reset) }
end

-- The slot of the n-th waiting caller, µs from now.
local function slot_of(n)
  return tonumber(redis.call('ZRANGE', waiting, n, n, 'WITHSCORES')[2]) - now
end

if offset > 0 and most and ahead >= most then
  return answer('full', ahead > 0 and slot_of(ahead - most) or math.ceil(offset))
end
local turn = math.ceil(offset)
if ahead < undelayed then turn = 0 elseif undelayed > 0 then turn = math.min(turn, slot_of(ahead - undelayed)) end
if ARGV[6] ~= '' and turn > tonumber(ARGV[6]) then return answer('late', turn - tonumber(ARGV[6])) end
-- In shadow mode a cost that would have been refused is not charged.
if l.mode ~= 'off' and part.offset <= offset then
  l.verbs.charge(s, l, cost, offset)
  l.verbs.save(s, l)
end
local _, reset = l.verbs.view(s, l)
if not shared then limit_checks.keep_place(l, place, reset) end
if offset > 0 then
  redis.call('ZADD', waiting, as_text.us(now + math.ceil(offset)), ARGV[3])
  local last = slot_of(-1)
  redis.call('PEXPIRE', waiting, string.format('%.0f', math.ceil(last / 1000) + limit_state.SLACK_MS))
end
local reserved = answer('ok', turn)
redis.call('PSETEX', KEYS[4], as_text.us(math.ceil((ends - now) / 1000) + 1), cmsgpack.pack(reserved))
return reserved
