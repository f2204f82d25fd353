local limit_state = use 'limits/state'
local as_text = use 'redis/as-text'

-- The sliding window log: every charge with its time. Exact, and as large as the limit. A window is half-open: a charge
-- exactly one window ago no longer counts.
--   l.limit   units per window
--   l.window  µs
-- A sorted set: score = time (µs), member = the sum of all charges up to that time, so that the units of a window are a
-- single difference. Charges for the same time are one entry: no two have equal scores or members. The newest entry
-- that is out of the window is kept, for its sum; before the first one the sum is 0. The member 'seen' (score: minus
-- the time of the last change) comes before all others.
local FIRST = 1
-- Maximum number of old entries removed per call.
local TRIMMED = 100
-- This many entries are read at once when charges are refunded.
local CHUNK = 50

local function sum_of(found)
  return tonumber(found[1]) or 0
end

local function expire(s, l)
  local lasts = math.ceil((s.last + l.window - s.now) / 1000) + limit_state.SLACK_MS
  redis.call('PEXPIRE', s.key, string.format('%.0f', lasts))
end

-- All charges that counted now count as charged now: times of the old clock have no meaning any more.
local function restart(s, l, seen)
  local out = redis.call('ZREVRANGEBYSCORE', s.key, as_text.us(seen - l.window), 0, 'LIMIT', 0, 1)
  s.base, s.sum, s.last = 0, s.sum - sum_of(out), s.now
  redis.call('UNLINK', s.key)
  if s.sum == 0 then return end
  redis.call('ZADD', s.key, as_text.us(-s.now), 'seen', as_text.us(s.now), as_text.exact(s.sum))
  expire(s, l)
end

local function open(key, l, now)
  local s = { key = key, now = now, base = 0, sum = 0, last = 0 }
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if not last[1] then return s end
  s.sum, s.last = tonumber(last[1]), tonumber(last[2])
  local seen = -tonumber(redis.call('ZSCORE', key, 'seen'))
  if now < seen then
    restart(s, l, seen)
  else
    s.base = sum_of(redis.call('ZREVRANGEBYSCORE', key, as_text.us(now - l.window), 0, 'LIMIT', 0, 1))
  end
  return s
end

-- The rank of the first entry whose sum is at least `sum`.
local function rank_of(s, sum)
  local low, high = FIRST, redis.call('ZCARD', s.key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sum_of(redis.call('ZRANGE', s.key, middle, middle)) < sum then low = middle + 1 else high = middle end
  end
  return low
end

-- The time (µs) of the first entry whose sum is at least `sum`.
local function charged_at(s, sum)
  for i, planned in ipairs(s.planned or {}) do
    if sum > planned.before and sum <= planned.sum then return planned.at end
  end
  local rank = rank_of(s, sum)
  return tonumber(redis.call('ZRANGE', s.key, rank, rank, 'WITHSCORES')[2])
end

-- In the order of the entries: none goes before one that is charged ahead.
local function earliest(s, l, cost)
  local order = math.max(0, s.last - s.now)
  if s.sum == s.base or s.sum - s.base + cost <= l.limit then return order end
  return math.max(order, charged_at(s, math.min(s.sum, s.sum + cost - l.limit)) + l.window - s.now)
end

local function charge(s, l, cost, offset)
  local at = math.max(s.last, s.now + math.ceil(offset))
  if s.planned then
    s.planned[#s.planned + 1] = { at = at, before = s.sum, sum = s.sum + cost }
    s.sum, s.last = s.sum + cost, at
    return
  end
  if at == s.last then redis.call('ZREM', s.key, as_text.exact(s.sum)) end
  s.sum, s.last = s.sum + cost, at
  redis.call('ZADD', s.key, as_text.us(-s.now), 'seen', as_text.us(s.last), as_text.exact(s.sum))
end

-- A refund is taken from the oldest charges of the window, which leave it first: any other way could let more than the
-- limit into a later window.
local function give_back(s, l, cost)
  local base = math.min(s.sum, s.base + cost)
  if base == s.base then
    s.last = 0
    return
  end
  local out = as_text.us(s.now - l.window)
  -- There may be an entry for this very moment already.
  redis.call('ZREMRANGEBYSCORE', s.key, out, out)
  -- Entries out of the window are removed gradually.
  local first = FIRST + redis.call('ZCOUNT', s.key, 0, out)
  redis.call('ZREMRANGEBYRANK', s.key, first, rank_of(s, base) - 1)
  local kept = redis.call('ZRANGE', s.key, first, first)[1]
  if kept and tonumber(kept) <= base then redis.call('ZREM', s.key, kept) end
  redis.call('ZADD', s.key, out, as_text.exact(base), as_text.us(-s.now), 'seen')
  s.base = base
end

local function remove(s, _, cost)
  local before = redis.call('ZRANGE', s.key, -2, -2)[1]
  redis.call('ZREM', s.key, as_text.exact(s.sum))
  s.sum = s.sum - cost
  if before == 'seen' or tonumber(before) < s.sum then redis.call('ZADD', s.key, as_text.us(s.last), as_text.exact(s.sum)) end
  redis.call('ZADD', s.key, as_text.us(-s.now), 'seen')
end

-- An entry, the newest first: {sum, at, back} each, where `back` is its refund. 'seen' is the last of them. Nil after
-- that, or if no more may be read.
local function entry(s, i, budget)
  while i > #s.newest and not s.whole do
    local most = math.min(CHUNK, budget.entries)
    if most == 0 then return nil end
    local rows = redis.call('ZREVRANGE', s.key, #s.newest, #s.newest + most - 1, 'WITHSCORES')
    budget.entries = budget.entries - most
    for row = 1, #rows, 2 do
      s.newest[#s.newest + 1] = { sum = tonumber(rows[row]) or 0, at = tonumber(rows[row + 1]), back = 0 }
    end
    s.whole = #rows < 2 * most
  end
  return s.newest[i]
end

local function take_back(s, l, cost, slot, budget)
  if slot <= s.now - l.window then return false end
  s.newest, s.reached = s.newest or {}, s.reached or 1
  local found = entry(s, s.reached, budget)
  while found and found.at > slot do
    s.reached = s.reached + 1
    found = entry(s, s.reached, budget)
  end
  local before = found and found.at == slot and entry(s, s.reached + 1, budget)
  local back = before and math.min(cost, found.sum - before.sum - found.back) or 0
  if back <= 0 then return false end
  found.back, s.oldest = found.back + back, s.reached
  return true
end

-- Reduces the sums of all entries later than the oldest refunded one.
local function rewrite(s)
  local back, kept = 0, {}
  redis.call('ZREMRANGEBYSCORE', s.key, as_text.us(s.newest[s.oldest].at), '+inf')
  for i = s.oldest, 1, -1 do
    local one = s.newest[i]
    back = back + one.back
    if one.sum - s.newest[i + 1].sum > one.back then
      kept[#kept + 1], kept[#kept + 2] = as_text.us(one.at), as_text.exact(one.sum - back)
    end
  end
  if #kept > 0 then redis.call('ZADD', s.key, unpack(kept)) end
  local last = redis.call('ZRANGE', s.key, -1, -1, 'WITHSCORES')
  s.sum = tonumber(last[1]) or 0
  s.last = s.sum > 0 and tonumber(last[2]) or 0
  if s.sum == 0 then redis.call('UNLINK', s.key) else redis.call('ZADD', s.key, as_text.us(-s.now), 'seen') end
end

local function adjust(s, l, cost)
  if cost < 0 then return give_back(s, l, -cost) end
  if cost > 0 then charge(s, l, cost, 0) end
end

local function charged_until(s, since)
  return sum_of(redis.call('ZREVRANGEBYSCORE', s.key, as_text.us(since), 0, 'LIMIT', 0, 1))
end

-- Each entry was written when it was charged. Refunds are written here, in one pass.
local function save(s, l)
  if s.oldest then rewrite(s) end
  if s.last == 0 then return end
  local out = redis.call('ZCOUNT', s.key, 0, as_text.us(s.now - l.window))
  if out > 1 then redis.call('ZREMRANGEBYRANK', s.key, FIRST, FIRST + math.min(out - 1, TRIMMED) - 1) end
  expire(s, l)
end

local function view(s, l)
  local used = s.sum - s.base
  return l.limit - used, used > 0 and s.last + l.window or s.now
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, remove = remove, take_back = take_back,
  charged_until = charged_until, save = save, view = view,
}
