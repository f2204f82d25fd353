local free_places = use 'admission/free-places'
local group_later = use 'groups/later'
local group_schedule = use 'groups/schedule'
local bucket = use 'meter/bucket'

-- When a full group has places again. Its own departures give some back, and those of others raise a bound by what is free.

local group_retry = {}

-- The first number from low to high that holds; high, if none below does.
function group_retry.first(low, high, holds)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if holds(middle) then high = middle else low = middle + 1 end
  end
  return high
end

-- When n jobs of the group have left, ms from now, by its own rate, limits and pause; math.huge if that is not known. line:
-- how many of its jobs are in line; then delayed ones have to come first.
function group_retry.own_departures(g, shape, group, line)
  local s, b = g:settings(group), nil
  local from = math.max(g.now, s.paused or 0, s.limited or 0)
  if from == math.huge then return function(n) return n == 0 and 0 or math.huge end end
  b = g:bucket(group, s)
  local limits = group_schedule.of(g, shape)
  return function(n)
    if n == 0 then return 0 end
    local at = from
    if b then at = math.max(at, b.origin + bucket.nth_slot(b, n, 1, 1, from - b.origin)) end
    if limits then at = math.max(at, (limits(group, n, from))) end
    local ms = math.ceil((at - g.now) / 1000)
    if n <= line then return ms end
    local due = group_later.due(g.base, group, n - line)
    return math.max(ms, due and due - math.floor(g.now / 1000) or free_places.UNKNOWN_MS)
  end
end

-- The n-th departure of the queue, ms from now. Each is computed once.
function group_retry.queue_departures(g, shape)
  local depth = redis.call('LLEN', g.base .. 'wait') + redis.call('ZCARD', g.base .. 'prioritized')
  local known = {}
  return function(n)
    n = math.min(n, math.max(1, depth))
    known[n] = known[n] or free_places.retry_ms(g.base, shape, g.now, n)
    return known[n]
  end
end

-- When so many jobs of others have left, ms from now, as far as the rate of groups decides. groups: how many have jobs
function group_retry.other_departures(g, groups)
  local interval = g.enforced and g.defaults.interval
  return function(n)
    if not interval then return 0 end
    return math.ceil(math.ceil(n / math.max(1, groups)) * interval / 1000)
  end
end

-- When the group has its places, ms from now. asked: as in group_admission.refuse
--   own      how many of its jobs leave until then: the more do, the fewer of the others have to
--   turns    how many groups take turns: with that many departures one of its jobs leaves, if it is not held
function group_retry.retry_ms(g, shape, group, asked)
  local bound, wanted, turns = asked.bound, asked.held + asked.count, redis.call('ZCARD', g:key('ready'))
  local is_ready, limited = redis.call('ZSCORE', g:key('ready'), group), redis.call('ZCARD', g:key('limited'))
  local is_limited = not is_ready and redis.call('ZSCORE', g:key('limited'), group)
  local others = turns + limited - ((is_ready or is_limited) and 1 or 0)
  local most = math.min(asked.held, wanted - asked.limit)
  local least = math.min(most, math.max(0, wanted - bound.own))
  if others == 0 then least = most end
  turns = math.max(1, turns)
  local function lacks(own) return bound.lacks(asked.held, wanted - own) end
  local function departures(own) return math.max(own + lacks(own), own * turns) end
  local own_ms, queue_ms = group_retry.own_departures(g, shape, group, asked.line), group_retry.queue_departures(g, shape)
  local others_ms = group_retry.other_departures(g, others)
  local function other_ms(own) return math.max(queue_ms(departures(own)), others_ms(lacks(own))) end
  local function ms(own) return math.max(own_ms(own), other_ms(own)) end
  local fewest = group_retry.first(least, most, function(own) return own * turns >= departures(own) end)
  local own = group_retry.first(least, fewest, function(own) return own_ms(own) >= other_ms(own) end)
  local soonest = ms(own)
  if own > least then soonest = math.min(soonest, ms(own - 1)) end
  return soonest < math.huge and math.max(1, soonest) or free_places.UNKNOWN_MS
end

return group_retry
