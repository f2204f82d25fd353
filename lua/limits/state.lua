local limit_control = use 'limits/control'
local bucket = use 'meter/bucket'
local service = use 'meter/service'
local as_text = use 'redis/as-text'

-- The state of one key of a limit, for algorithms that keep one: four numbers, packed into a string. It expires when it
-- no longer matters; no decision depends on that, because each uses the stored times.
--   of a window   when it was changed (µs), and its algorithm's data: three numbers, or four
--   of a bucket   when it was changed (µs), its level then (µs, units or tokens), the interval with which that was
--   computed, and how long after that time (µs) the last charged slot lies (negative: before it); if its rate follows
--                 the clock, a fifth one that identifies its schedule: it counts in service, as limits/scheduled-bucket
local limit_state = { SLACK_MS = 1000 }
local FORMAT, SCHEDULED, BYTES = '<dddd', '<ddddd', 32
-- The interval of 1/s.
local OPEN_US = 1000000
-- This many hexadecimal digits make a whole number.
local DIGITS = 12

-- Adds the service of the rate to a stored limit, if that follows the clock:
--   l.schedule     as src/limits/schedule.ts encodes it; for a window (limits/even-window) that of its open hours, at a
--                  rate of 1/s; false for a value or tier without one, if the limit has one
--   l.service      as in meter/service
--   l.schedule_id  a number that identifies it in states
function limit_state.follow_clock(l)
  l.service, l.schedule_id = l.schedule, l.schedule
  if not l.schedule then return end
  l.service = service.of({ nil, nil, l.schedule }, l.interval or OPEN_US)
  local parts = { l.schedule[1], table.concat(l.schedule[3], ' ') }
  for i, entry in ipairs(l.schedule[2]) do parts[i + 2] = entry[4] .. '/' .. entry[5] end
  l.schedule_id = tonumber(string.sub(redis.sha1hex(table.concat(parts, ' ')), 1, DIGITS), 16)
end

-- The time that a bucket counts between two times, µs at its interval.
local function counted(l, from, to)
  return l.service and service.between(l.service, from, to) or math.max(0, to - from)
end

-- The numbers in order, or nothing if none are stored. packed: the string, false if there is none, nil if it must be
-- read
function limit_state.load(key, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if packed then return struct.unpack(#packed > BYTES and SCHEDULED or FORMAT, packed) end
end

-- The schedule of a bucket's packed state, nil without one.
local function schedule_in(packed)
  return #packed > BYTES and select(5, struct.unpack(SCHEDULED, packed)) or nil
end

-- When a packed state was changed, µs.
function limit_state.seen(packed)
  return (struct.unpack(FORMAT, packed))
end

-- lasts: how long it matters, µs from now
function limit_state.store(key, lasts, ...)
  redis.call('PSETEX', key, math.ceil(lasts / 1000) + limit_state.SLACK_MS,
    struct.pack(select(5, ...) and SCHEDULED or FORMAT, ...))
end

-- Adds to a limit of a queue what may follow the rate of a state by itself, for bucket.kept_us: its own rate, that of a tier,
-- or the one after an override (follows: name -> interval, nil without one). l.lowest: the interval of the lowest;
-- l.closing: those rates of a limit with tiers that follow the clock, which may be closed for longer. Returns it
function limit_state.lasting(l, follows)
  if not l.interval or l.shared then return l end
  l.lowest, l.closing = math.max(l.interval, follows and follows[l.name] or 0), {}
  local rates = l.tiers and { l } or {}
  for _, values in pairs(l.tiers or {}) do rates[#rates + 1] = values end
  for _, rate in ipairs(rates) do
    local interval = rate.interval or l.interval
    l.lowest = math.max(l.lowest, interval)
    local clock = rate.schedule and service.of({ nil, nil, rate.schedule }, interval)
    if clock then l.closing[#l.closing + 1] = { interval = interval, service = clock } end
  end
  return l
end

-- All rates of a limit, as a text.
local function rates_of(l)
  local rates = {}
  for tier, values in pairs(l.tiers or {}) do
    rates[#rates + 1] = tier .. ' ' .. (values.interval or '') .. cjson.encode(values.schedule or false)
  end
  table.sort(rates)
  return (l.interval or '') .. cjson.encode(l.schedule or false) .. table.concat(rates, ' ')
end

-- When the rates of limits with `by` changed last, and the time before (µs): JSON, name -> {last, earlier}; false if none
-- did. known: the same before the limits (JSON, or nil) changed at `at`; before: the old limits
function limit_state.rate_changes(known, before, limits, at)
  local old, rate_changes = {}, {}
  known = known and cjson.decode(known) or {}
  for _, l in ipairs(cjson.decode(before)) do old[l.name] = rates_of(l) end
  for _, l in ipairs(limits and cjson.decode(limits) or {}) do
    local times = known[l.name]
    if old[l.name] ~= rates_of(l) then times = { as_text.us(at), times and times[1] or '0' } end
    if l.by and l.interval then rate_changes[l.name] = times end
  end
  return next(rate_changes) and cjson.encode(rate_changes) or false
end

-- How long a debt, µs at the interval of a limit, is kept under the slowest of those rates, µs; 0 without them.
local function closed_for(l, now, debt)
  local lasts = 0
  for _, rate in ipairs(l.closing or {}) do
    local paid = service.after(rate.service, now, debt * rate.interval / l.interval)
    lasts = math.max(lasts, paid - now + bucket.PAID_US)
  end
  return lasts
end

-- Whether a state is stored that is more than a paid debt.
function limit_state.matters(key, l)
  local left_ms = redis.call('PTTL', key)
  return left_ms ~= -2 and (not l.lowest or left_ms > bucket.PAID_US / 1000 + limit_state.SLACK_MS)
end

-- Stores the state of a bucket. lasts: how long its level matters, in the bucket's time, µs, at its rate; l.lowest, of a
-- queue's limit: as in bucket.kept_us
function limit_state.keep(s, l, lasts, level)
  local closed = closed_for(l, s.now, lasts)
  if l.lowest then lasts = bucket.kept_us(lasts, l.interval, l.lowest) end
  if l.service then lasts = service.after(l.service, s.now, lasts) - s.now end
  limit_state.store(s.key, math.max(lasts, closed), s.now, level, l.interval, s.ahead, l.schedule_id)
end

-- The debt of a level, µs at an interval, and the level of a debt, at the limit's interval.
local function debt_of(l, level, interval)
  if l.algorithm == 'token-bucket' then level = l.burst - level end
  return l.algorithm == 'gcra' and level or level * interval
end

local function level_of(l, debt)
  if l.algorithm == 'gcra' then return bucket.ceil(debt) end
  return l.algorithm == 'token-bucket' and l.burst - debt / l.interval or debt / l.interval
end

-- The time that two limits count between two times at the lower of both rates, up to `most`; µs at the first one's
-- interval.
local function slower(one, other, from, to, most)
  local sum = 0
  while from < to and sum < most do
    local ends = to
    for _, l in ipairs({ one, other }) do
      if l.service then ends = math.min(ends, select(2, service.speed(l.service, from))) end
    end
    sum = sum + math.min(counted(one, from, ends), counted(other, from, ends) * one.interval / other.interval)
    from = ends
  end
  return sum
end

-- The rate by which a state was stored; nil if its schedule is neither that of `before` nor of a tier.
local function rate_of(l, interval, schedule, before)
  if not schedule then return { interval = interval } end
  local known = { before and before.schedule or false, l.untiered and l.untiered.schedule or false }
  for _, values in pairs(l.tiers or {}) do known[#known + 1] = values.schedule or false end
  for _, text in ipairs(known) do
    local rate = { interval = interval, schedule = text }
    limit_state.follow_clock(rate)
    if rate.schedule_id == schedule then return rate end
  end
end

-- As limit_state.at, for a rate that follows the clock or did: slots granted ahead stay, and the debt after them is
-- counted in units. If the earlier schedule is unknown, no time counts until the rates were changed (l.rate_changes).
local function retimed(key, l, at, seen, level, interval, ahead, schedule, before)
  local from, old = math.max(seen, at), rate_of(l, interval, schedule, before)
  local debt, gone = debt_of(l, level, interval), nil
  if not old then
    local changed = l.rate_changes and tonumber(l.rate_changes[1]) or from
    gone = counted(l, math.max(seen, changed), from) * interval / l.interval
  elseif before then gone = counted(old, seen, from)
  else gone = slower(old, l, seen, from, debt) end
  debt = math.max(0, debt - gone)
  ahead = ahead - (from - seen)
  local last, granted = from + math.max(0, math.ceil(ahead)), 0
  if debt > 0 and last > from then
    local owed = math.min(debt, counted(old or l, from, last))
    debt, granted = debt - owed, counted(l, from, last)
  end
  local s = { key = key, now = from, ahead = ahead }
  debt = debt * l.interval / interval + granted
  level = level_of(l, debt)
  limit_state.keep(s, l, debt, level)
  return from, level, ahead
end

-- Whether the rates of two limits changed at other times: one of them is of a value's own.
local function changed_otherwise(one, other)
  return (one.rate_changes or false) ~= (other.rate_changes or false)
end

-- Whether states have to be recomputed if one limit replaces another.
function limit_state.differ(one, other)
  return one.interval ~= other.interval or one.schedule_id ~= other.schedule_id or changed_otherwise(one, other)
end

-- Time, level and last slot of a bucket's packed state. If they were computed with an interval or a schedule other than
-- l's, they are recomputed and stored: the limit changed at `at` (µs), from `before`, or, unless that is known, between
-- the last charge and then. Debts are kept in units, counted from the last granted slot: slots granted ahead of a raise
-- depart at the lower rate, and so do refills until then. A lower rate counts from the change or, if its time is not
-- certain, from the last charge. If it changed more than once since then (l.rate_changes: when it did last, and before),
-- the rates between are unknown: no time counts until the last change.
function limit_state.at(key, l, at, packed, before)
  local seen, level, interval, ahead = struct.unpack(FORMAT, packed)
  local schedule, rate_changes = schedule_in(packed), (before or l).rate_changes
  if before and rate_changes and seen <= tonumber(rate_changes[1]) then
    -- It is older than the change to `before`.
    seen, level, ahead = limit_state.at(key, before, at, packed)
    interval, schedule = before.interval, before.schedule_id or nil
  end
  -- Not after Redis's clock went back to before the last change.
  local skips = not before and rate_changes and seen <= tonumber(rate_changes[2]) and tonumber(rate_changes[1]) <= at
  if skips then
    local changed = tonumber(rate_changes[1])
    seen, ahead = changed, ahead - (changed - seen)
  end
  local is_same = interval == l.interval and schedule == (l.schedule_id or nil)
  if is_same and not (before and changed_otherwise(before, l)) then
    if skips then limit_state.keep({ key = key, now = seen, ahead = ahead }, l, debt_of(l, level, interval), level) end
    return seen, level, ahead
  end
  if schedule or l.service then return retimed(key, l, at, seen, level, interval, ahead, schedule, before) end
  local elapsed, raised = math.max(0, at - seen), interval > l.interval
  seen, ahead = seen + elapsed, ahead - elapsed
  if not raised and not before then elapsed = elapsed * interval / l.interval end
  local debt = math.max(0, debt_of(l, level, interval) - elapsed)
  -- A refunded charge no longer reaches that far.
  local granted = raised and math.max(0, math.min(ahead, debt)) or 0
  debt = (debt - granted) * l.interval / interval + granted
  level = level_of(l, debt)
  limit_state.keep({ key = key, now = seen, ahead = ahead }, l, debt, level)
  return seen, level, ahead
end

-- The level of a bucket, how long ago that was in the bucket's time, and how far ahead of now the last charged slot
-- lies (µs; negative: before it); nothing if nothing is stored.
function limit_state.load_bucket(key, l, now, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if not packed then return nil end
  local seen, level, ahead = limit_state.at(key, l, now, packed)
  -- If the clock went back, distances in time are kept.
  local passed = now > seen and now - seen or 0
  return level, l.service and counted(l, seen, now) or passed, ahead - passed
end

-- Only the last charges are refunded: an earlier one would be granted twice.
function limit_state.take_back(s, l, cost, slot)
  if s.now + math.ceil(s.ahead) ~= slot then return false end
  l.verbs.adjust(s, l, -cost)
  return true
end

-- The limits (JSON) of a queue change at `at` (µs): up to then their buckets use their old intervals. before: the old
-- limits, JSON, or false; as_of: of limits/own-values, for members of pools; follows: of limit_state.lasting
function limit_state.change_limits(base, limits, before, at, as_of, follows)
  local known = {}
  for _, l in ipairs(before and cjson.decode(before) or {}) do known[l.name] = l end
  local function change(l, key, old)
    local packed = redis.call('GET', key)
    if not packed then return end
    limit_state.follow_clock(l)
    limit_state.follow_clock(old)
    limit_state.at(key, l, at, packed, old)
  end
  for _, l in ipairs(cjson.decode(limits)) do
    limit_state.lasting(l, follows)
    local old = known[l.name]
    if l.interval and not (l.by or l.pool) then change(l, limit_control.of_queue(l, base) .. l.state, old or {}) end
    for _, member in ipairs(l.interval and l.pool or {}) do
      local key = limit_control.states_of_values(l, base) .. member
      change(as_of(base, l, member, at), key, old and as_of(base, old, member, at) or {})
    end
  end
end

-- Charges unconditionally, or refunds, and stores the state.
function limit_state.settle(l, s, cost)
  l.verbs.adjust(s, l, cost)
  l.verbs.save(s, l)
end

-- Lowers the remaining units to `remaining`: others have used the rest.
function limit_state.lower(l, s, remaining)
  local surplus = l.mode ~= 'off' and l.verbs.adjust and l.verbs.view(s, l) - remaining or 0
  if surplus > 0 then limit_state.settle(l, s, surplus) end
end

-- How much of a charge made at `since` (µs) can be refunded: units refilled since then may have gone to others, and
-- refills until the last granted slot are promised to them.
function limit_state.credit(l, s, cost, since)
  if l.interval then return math.max(0, cost - counted(l, since, s.now + math.max(0, s.ahead)) / l.interval) end
  if l.verbs.charged_until then return math.min(cost, math.max(0, l.verbs.charged_until(s, since) - s.base)) end
  return since >= s.start and cost or 0
end

-- Undoes the last charge, if nothing came after it, and stores the state.
function limit_state.undo(l, s, cost)
  local remove = l.verbs.remove
  if remove then remove(s, l, cost) else l.verbs.adjust(s, l, -cost) end
  l.verbs.save(s, l)
end

-- Identifies a state: the same stamp means the same state.
function limit_state.stamp(key, algorithm)
  if algorithm == 'sliding-window-log' then return redis.call('ZRANGE', key, -1, -1)[1] or '' end
  return redis.sha1hex(redis.call('GET', key) or '')
end

return limit_state
