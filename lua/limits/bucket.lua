local queue_limit_control = use 'limits/queue-limit-control'
local bucket = use 'meter/bucket'

-- The state of a key in each bucket of lua/limits: when it was changed (µs), its level then, the interval with which
-- that was computed, and how long after that time (µs) the last charged slot lies (below 0: before it). The level is in
-- µs, units or tokens, depending on the algorithm. A state expires when it no longer matters: no decision depends on that.
local limit_bucket = { FORMAT = '<dddd', SLACK_MS = 1000 }

-- Stores the state of a key. lasts: how long it matters, µs from now
function limit_bucket.keep(key, lasts, packed)
  redis.call('PSETEX', key, math.ceil(lasts / 1000) + limit_bucket.SLACK_MS, packed)
end

function limit_bucket.store(key, lasts, seen, level, interval, ahead)
  limit_bucket.keep(key, lasts, struct.pack(limit_bucket.FORMAT, seen, level, interval, ahead))
end

-- Returns time, level and last slot of a state. If they were computed with an interval other than l's, they are
-- recomputed and stored: the limit changed at `at` (µs) or, unless that is certain, between the last charge and then.
-- Debts are kept in units, counted from the last granted slot: slots granted ahead of a raise leave at the lower rate,
-- and so do refills until then. A lower rate counts from the change or, if its time is not certain, from the last
-- charge.
function limit_bucket.at(key, l, at, packed, certain)
  local seen, level, interval, ahead = struct.unpack(limit_bucket.FORMAT, packed)
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
  limit_bucket.store(key, debt, seen, level, l.interval, ahead)
  return seen, level, ahead
end

-- For a bucket: its level, how long ago that was, and how far ahead of now the last charged slot lies (µs; below 0:
-- before it); nothing if nothing is stored.
function limit_bucket.load(key, l, now, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if not packed then return nil end
  local seen, level, ahead = limit_bucket.at(key, l, now, packed, false)
  -- If the clock went back, distances in time are kept.
  local elapsed = math.max(0, now - seen)
  return level, elapsed, ahead - elapsed
end

-- Only the last charges are taken back: what was charged behind others would be granted twice.
function limit_bucket.take_back(s, l, cost, slot)
  if s.now + math.ceil(s.ahead) ~= slot then return false end
  l.verbs.adjust(s, l, -cost)
  return true
end

-- The limits (JSON) of a queue change at `at` (µs): up to then their buckets use the intervals that they had.
function limit_bucket.change(base, limits, at)
  for _, l in ipairs(cjson.decode(limits)) do
    local key = l.interval and queue_limit_control(l, base) .. l.state
    local packed = key and redis.call('GET', key)
    if packed then limit_bucket.at(key, l, at, packed, true) end
  end
end

return limit_bucket
