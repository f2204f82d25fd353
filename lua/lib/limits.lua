--- @include "limits/fixed-window"
--- @include "limits/sliding-window-log"
--- @include "limits/sliding-window-counter"
--- @include "limits/token-bucket"
--- @include "limits/leaky-bucket"
--- @include "limits/gcra"
--- @include "limits/concurrency"
--- @include "lib/clock"

-- What the scripts of sluice/limits share.
-- A limit's control hash:
--   definition, version, by   what its name stands for, JSON; the version and who declared it
--   mode                      set at run time, for all
--   blockedUntil              µs: after it no key is blocked
--   takenAt                   µs: the last take of somebody who does not wait, where a share is reserved for these
-- Beside it: <control>:blocks, a sorted set of the blocked keys, by the end of the block (µs);
-- <control>:keys, where the keys are counted, a sorted set of them by the time at which they say nothing any more;
-- <control>:others:<algorithm>, the state that all further keys share.

-- waits: for somebody who waits for his turn, and leaves the reserved share to those who do not, unless it is idle
local function limit_prepare(l, control, now, waits)
  local f = redis.call('HMGET', control, 'mode', 'blockedUntil', 'takenAt')
  l.control, l.mode, l.blocked_until = control, f[1] or l.mode, tonumber(f[2]) or 0
  l.verbs = limit_algorithm(l.algorithm)
  if l.reserve and waits and f[3] and now - f[3] < l.lend then
    local kept = 1 - l.reserve
    l.burst, l.limit = l.burst and l.burst * kept, l.limit and l.limit * kept
  end
  return l
end

local function limit_read(control, definition, now, waits)
  return limit_prepare(cjson.decode(definition), control, now, waits)
end

-- Where the state of a key is: with as many keys as a limit may have, all further ones share one.
local function limit_place(l, key, now)
  if not l.maxKeys then return key, false end
  local keys = l.control .. ':keys'
  if redis.call('ZSCORE', keys, key) then return key, false end
  redis.call('ZREMRANGEBYSCORE', keys, '-inf', us_text(now))
  if redis.call('ZCARD', keys) >= l.maxKeys then return l.control .. ':others:' .. l.algorithm, true end
  return key, false
end

-- Notes that a key is in use until then.
local function limit_keep_place(l, key, reset)
  if not l.maxKeys then return end
  redis.call('ZADD', l.control .. ':keys', us_text(reset), key)
end

-- µs for which a key is blocked.
local function limit_blocked(l, key, now)
  if l.blocked_until <= now then return 0 end
  return math.max(0, (tonumber(redis.call('ZSCORE', l.control .. ':blocks', key)) or 0) - now)
end

-- One limit for one key and one cost: what it says, nothing is charged.
local function limit_ask(l, key, cost, now)
  local place, shared = limit_place(l, key, now)
  local part = { l = l, cost = cost, offset = 0, key = place, shared = shared }
  part.s = l.verbs.open(place, l, now)
  if l.mode == 'off' then return part end
  part.offset = l.verbs.earliest(part.s, l, cost)
  part.blocked = limit_blocked(l, key, now)
  return part
end

-- Whether it stands in the way: a limit in shadow does not, a block of the key is somebody's word.
local function limit_wait(part)
  local blocked = part.blocked or 0
  if part.l.mode ~= 'enforce' then return blocked end
  return math.max(part.offset, blocked)
end

-- Charges it for a time, µs from now. In shadow what would have been refused is not charged, as if it had been.
local function limit_charge(part, offset, lease)
  local l, s = part.l, part.s
  if l.mode == 'off' or (l.mode == 'shadow' and part.offset > offset) then return end
  s.lease = lease
  l.verbs.commit(s, l, part.cost, offset)
end

-- Somebody who does not wait was here: what is reserved for him is not lent for a while.
local function limit_note_take(l, now)
  if l.reserve and l.mode ~= 'off' then redis.call('HSET', l.control, 'takenAt', us_text(now)) end
end

-- What is told of it: µs until it conforms, units left, µs at which all are there again.
local function limit_tell(part, told)
  local left, reset = part.l.verbs.view(part.s, part.l)
  told[#told + 1] = math.ceil(math.max(part.offset, part.blocked or 0))
  told[#told + 1] = math.max(0, math.floor(left))
  told[#told + 1] = math.ceil(reset)
end
