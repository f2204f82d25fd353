--- @include "lib/limit-state"

-- The sliding window log: every charge with its time. Exact, and as large as the limit. A window is half-open: a charge
-- exactly one window ago no longer counts.
--   l.limit   units per window
--   l.window  µs
-- A sorted set: score = time (µs), member = the sum of all charges up to that time, so that the units of a window are a
-- single difference. Charges for the same time are one entry: no two have equal scores or members. The newest entry
-- that is out of the window is kept, for its sum; before the first one the sum is 0. The member 'seen' (score: minus
-- the time of the last change) comes before all others.
limit_factories['sliding-window-log'] = function()
  local FIRST = 1
  -- Maximum number of old entries removed per call.
  local TRIMMED = 100
  -- Maximum number of later entries rewritten when a charge is taken back.
  local REWRITTEN = 1000

  local function sum_of(found)
    return tonumber(found[1]) or 0
  end

  local function expire(s, l)
    local lasts = math.ceil((s.last + l.window - s.now) / 1000) + LIMIT_SLACK_MS
    redis.call('PEXPIRE', s.key, string.format('%.0f', lasts))
  end

  -- All charges that counted now count as charged now: times of the old clock mean nothing any more.
  local function restart(s, l, seen)
    local out = redis.call('ZREVRANGEBYSCORE', s.key, us_text(seen - l.window), 0, 'LIMIT', 0, 1)
    s.base, s.sum, s.last = 0, s.sum - sum_of(out), s.now
    redis.call('UNLINK', s.key)
    if s.sum == 0 then return end
    redis.call('ZADD', s.key, us_text(-s.now), 'seen', us_text(s.now), exact_text(s.sum))
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
      s.base = sum_of(redis.call('ZREVRANGEBYSCORE', key, us_text(now - l.window), 0, 'LIMIT', 0, 1))
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

  local function trim(s, l)
    local out = redis.call('ZCOUNT', s.key, 0, us_text(s.now - l.window))
    if out > 1 then redis.call('ZREMRANGEBYRANK', s.key, FIRST, FIRST + math.min(out - 1, TRIMMED) - 1) end
  end

  local function charge(s, l, cost, offset)
    local at = math.max(s.last, s.now + math.ceil(offset))
    if s.planned then
      s.planned[#s.planned + 1] = { at = at, before = s.sum, sum = s.sum + cost }
      s.sum, s.last = s.sum + cost, at
      return
    end
    if at == s.last then redis.call('ZREM', s.key, exact_text(s.sum)) end
    s.sum, s.last = s.sum + cost, at
    redis.call('ZADD', s.key, us_text(-s.now), 'seen', us_text(s.last), exact_text(s.sum))
  end

  -- A refund is taken from the oldest charges of the window, which leave it first: any other way could let more than
  -- the limit into a later window.
  local function give_back(s, l, cost)
    local base = math.min(s.sum, s.base + cost)
    if base == s.base then
      s.last = 0
      return
    end
    local out = us_text(s.now - l.window)
    -- There may be an entry for this very moment already.
    redis.call('ZREMRANGEBYSCORE', s.key, out, out)
    -- Entries out of the window are removed gradually.
    local first = FIRST + redis.call('ZCOUNT', s.key, 0, out)
    redis.call('ZREMRANGEBYRANK', s.key, first, rank_of(s, base) - 1)
    local kept = redis.call('ZRANGE', s.key, first, first)[1]
    if kept and tonumber(kept) <= base then redis.call('ZREM', s.key, kept) end
    redis.call('ZADD', s.key, out, exact_text(base), us_text(-s.now), 'seen')
    s.base = base
  end

  local function remove(s, _, cost)
    local before = redis.call('ZRANGE', s.key, -2, -2)[1]
    redis.call('ZREM', s.key, exact_text(s.sum))
    s.sum = s.sum - cost
    if before == 'seen' or tonumber(before) < s.sum then redis.call('ZADD', s.key, us_text(s.last), exact_text(s.sum)) end
  end

  -- The sums of all later entries fall.
  local function take_back(s, l, cost, slot)
    local rows = redis.call('ZRANGEBYSCORE', s.key, us_text(slot), '+inf', 'WITHSCORES', 'LIMIT', 0, REWRITTEN + 1)
    if slot <= s.now - l.window or tonumber(rows[2]) ~= slot or #rows > 2 * REWRITTEN then return false end
    local before = sum_of(redis.call('ZREVRANGEBYSCORE', s.key, '(' .. us_text(slot), 0, 'LIMIT', 0, 1))
    local charged, kept = tonumber(rows[1]) - before, {}
    local back = math.min(cost, charged)
    redis.call('ZREMRANGEBYSCORE', s.key, us_text(slot), '+inf')
    for i = back == charged and 3 or 1, #rows, 2 do
      kept[#kept + 1], kept[#kept + 2] = rows[i + 1], exact_text(tonumber(rows[i]) - back)
    end
    if #kept > 0 then redis.call('ZADD', s.key, unpack(kept)) end
    local last = redis.call('ZRANGE', s.key, -1, -1, 'WITHSCORES')
    s.sum = tonumber(last[1]) or 0
    s.last = s.sum > 0 and tonumber(last[2]) or 0
    if s.sum == 0 then redis.call('UNLINK', s.key) else redis.call('ZADD', s.key, us_text(-s.now), 'seen') end
    return true
  end

  local function adjust(s, l, cost)
    if cost < 0 then return give_back(s, l, -cost) end
    if cost > 0 then charge(s, l, cost, 0) end
  end

  local function charged_until(s, since)
    return sum_of(redis.call('ZREVRANGEBYSCORE', s.key, us_text(since), 0, 'LIMIT', 0, 1))
  end

  -- Each entry was written when it was charged.
  local function save(s, l)
    if s.last == 0 then return end
    trim(s, l)
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
end
