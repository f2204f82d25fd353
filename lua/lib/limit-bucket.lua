--- @include "bucket"
--- @include "limit-control"

-- What each bucket of lua/limits keeps of a key: when it was changed (µs), its level then, the interval by which that was
-- reckoned, and how long after that time (µs) the last slot lies that was charged. The level is µs, units or tokens, as the
-- algorithm has it. Older versions store the first two alone, and read these.
-- It expires when it has nothing to say any more: no answer depends on that.
-- One table: a script has no room for more than 200 local names.
local limit_bucket = { FORMAT = '<dddd', BYTES = 32, SLACK_MS = 1000 }

-- Stores what a limit knows of a key. lasts: µs from now on for which it matters
function limit_bucket.keep(key, lasts, packed)
  redis.call('PSETEX', key, math.ceil(lasts / 1000) + limit_bucket.SLACK_MS, packed)
end

function limit_bucket.store(key, lasts, seen, level, interval, ahead)
  limit_bucket.keep(key, lasts, struct.pack(limit_bucket.FORMAT, seen, level, interval, ahead))
end

-- Returns the first two and the last of these. Where they were reckoned by another interval than that of l, they are
-- reckoned anew and stored: the limit was changed at `at` (µs) or, where that is not certain, between then and the last
-- charge. Debts are kept in units, as seen from the last slot that was granted: what was granted ahead of a raise leaves by
-- the lower rate, and what comes back until then does so too. A lower rate counts from the change on; where that is not
-- certain, from the last charge on.
function limit_bucket.at(key, l, at, packed, certain)
  if #packed < limit_bucket.BYTES then
    local seen, level = struct.unpack('<dd', packed)
    return seen, level, 0
  end
  local seen, level, interval, ahead = struct.unpack(limit_bucket.FORMAT, packed)
  if interval == l.interval then return seen, level, ahead end
  local elapsed, raised = math.max(0, at - seen), interval > l.interval
  local tokens, gcra = l.algorithm == 'token-bucket', l.algorithm == 'gcra'
  seen, ahead = seen + elapsed, math.max(0, ahead - elapsed)
  if not raised and not certain then elapsed = elapsed * interval / l.interval end
  if tokens then level = l.burst - level end
  local debt = math.max(0, (gcra and level or level * interval) - elapsed)
  -- A charge that was given back does not reach that far any more.
  local granted = raised and math.min(ahead, debt) or 0
  debt = (debt - granted) * l.interval / interval + granted
  level = gcra and bucket_ceil(debt) or debt / l.interval
  if tokens then level = l.burst - level end
  limit_bucket.store(key, debt, seen, level, l.interval, ahead)
  return seen, level, ahead
end

-- The limits (JSON) of a queue change at `at` (µs): up to then the buckets among them reckon by the intervals that they had.
function limit_bucket.change(base, limits, at)
  for _, l in ipairs(cjson.decode(limits)) do
    local key = l.interval and queue_limit_control(l, base) .. l.state
    local packed = key and redis.call('GET', key)
    if packed then limit_bucket.at(key, l, at, packed, true) end
  end
end
