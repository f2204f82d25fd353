local limit_control = use 'limits/control'
local bucket = use 'meter/bucket'

-- The state of one key of a limit, of those that keep one: four numbers, packed into a string. It expires when it no longer
-- matters; no decision depends on that, since each uses the stored times.
--   of a window   when it was changed (µs), and what its algorithm keeps
--   of a bucket   when it was changed (µs), its level then (µs, units or tokens), the interval with which that was computed,
--                 and how long after that time (µs) the last charged slot lies (below 0: before it)
local limit_state = { SLACK_MS = 1000 }
local FORMAT = '<dddd'

-- The numbers in order, or nothing if none are stored. packed: the string, false if there is none, nil if it must be
-- read
function limit_state.load(key, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if packed then return struct.unpack(FORMAT, packed) end
end

-- When a packed state was changed, µs.
function limit_state.seen(packed)
  return (struct.unpack(FORMAT, packed))
end

-- lasts: how long it matters, µs from now
function limit_state.store(key, lasts, ...)
  redis.call('PSETEX', key, math.ceil(lasts / 1000) + limit_state.SLACK_MS, struct.pack(FORMAT, ...))
end

-- Time, level and last slot of a bucket's packed state. If they were computed with an interval other than l's, they are
-- recomputed and stored: the limit changed at `at` (µs) or, unless that is certain, between the last charge and then.
-- Debts are kept in units, counted from the last granted slot: slots granted ahead of a raise leave at the lower rate,
-- and so do refills until then. A lower rate counts from the change or, if its time is not certain, from the last
-- charge.
function limit_state.at(key, l, at, packed, certain)
  local seen, level, interval, ahead = struct.unpack(FORMAT, packed)
  if interval == l.interval then return seen, level, ahead end
  local elapsed, raised = math.max(0, at - seen), interval > l.interval
  local tokens, gcra = l.algorithm == 'token-bucket', l.algorithm == 'gcra'
  seen, ahead = seen + elapsed, ahead - elapsed
  if not raised and not certain then elapsed = elapsed * interval / l.interval end
  if tokens then level = l.burst - level end
  local debt = math.max(0, (gcra and level or level * interval) - elapsed)
  -- A charge that was refunded no longer reaches that far.
  local granted = raised and math.max(0, math.min(ahead, debt)) or 0
  debt = (debt - granted) * l.interval / interval + granted
  level = gcra and bucket.ceil(debt) or debt / l.interval
  if tokens then level = l.burst - level end
  limit_state.store(key, debt, seen, level, l.interval, ahead)
  return seen, level, ahead
end

-- The level of a bucket, how long ago that was, and how far ahead of now the last charged slot lies (µs; below 0:
-- before it); nothing if nothing is stored.
function limit_state.load_bucket(key, l, now, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if not packed then return nil end
  local seen, level, ahead = limit_state.at(key, l, now, packed, false)
  -- If the clock went back, distances in time are kept.
  local elapsed = math.max(0, now - seen)
  return level, elapsed, ahead - elapsed
end

-- Only the last charges are taken back: what was charged behind others would be granted twice.
function limit_state.take_back(s, l, cost, slot)
  if s.now + math.ceil(s.ahead) ~= slot then return false end
  l.verbs.adjust(s, l, -cost)
  return true
end

-- The limits (JSON) of a queue change at `at` (µs): up to then their buckets use the intervals that they had.
function limit_state.change_limits(base, limits, at)
  for _, l in ipairs(cjson.decode(limits)) do
    local key = l.interval and not l.by and limit_control.of_queue(l, base) .. l.state
    local packed = key and redis.call('GET', key)
    if packed then limit_state.at(key, l, at, packed, true) end
  end
end

-- Charges unconditionally, or refunds, and stores the state.
function limit_state.settle(l, s, cost)
  l.verbs.adjust(s, l, cost)
  l.verbs.save(s, l)
end

-- How much of a charge made at `since` (µs) can be refunded: what has refilled since then may have gone to others, and
-- what refills until the last granted slot has been promised to them.
function limit_state.credit(l, s, cost, since)
  if l.interval then return math.max(0, cost - math.max(0, s.now + math.max(0, s.ahead) - since) / l.interval) end
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
