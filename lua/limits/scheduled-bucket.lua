local bucket = use 'meter/bucket'
local service = use 'meter/service'
local as_text = use 'redis/as-text'

-- A bucket (limits/gcra, limits/token-bucket, limits/leaky-bucket) whose rate follows the clock counts in service
-- (meter/service) from s.now on, as it does in time at a fixed rate. These are the same functions for callers, who use
-- the clock.
--   l.service  of the rate
local scheduled_bucket = {
  -- After this many times at which one of several opens and another one is closed, they are checked again at the last
  -- of these times.
  MOST_OPENINGS = 16,
}

local function offset_of(s, l, units)
  return service.after(l.service, s.now, units) - s.now
end

-- The first time from `at` on, µs, when the rate of a limit, or of a bucket, is above 0.
function scheduled_bucket.opens(l, at)
  return l.service and service.after(l.service, at, 0) or at
end

-- While nothing may pass: until when (µs, as text), and the schedule's time zone; else nil.
function scheduled_bucket.closed(l, now)
  if not l.service then return nil end
  local speed, ends = service.speed(l.service, now)
  return speed == 0 and { ends = as_text.us(ends), zone = l.schedule[1] } or nil
end

-- The functions, given those of the algorithm.
function scheduled_bucket.of(verbs)
  local own = {}
  for name, verb in pairs(verbs) do own[name] = verb end

  function own.earliest(s, l, cost)
    return offset_of(s, l, bucket.ceil(verbs.earliest(s, l, cost)))
  end

  -- s.ahead is a distance in time.
  function own.charge(s, l, cost, offset)
    local ahead = s.ahead
    verbs.charge(s, l, cost, service.between(l.service, s.now, s.now + math.ceil(offset)))
    s.ahead = math.max(ahead, offset)
  end

  function own.view(s, l)
    local left, reset = verbs.view(s, l)
    return left, reset > s.now and s.now + offset_of(s, l, reset - s.now) or reset
  end

  return own
end

return scheduled_bucket
