-- A slow start: after a long pause, a rate rises in steps from a part of itself to all of it (`rampUp` of the shape).
-- Each step has the value of the straight line, or of the geometric curve, at its beginning, so the rate never exceeds
-- either; the line is never below the curve. A rate without departures for long (`afterIdleMs`) rests: it stays at the
-- first step until a job departs.
--   RESTS_MS   `since` of a resting rate: no time is that late
local ramp = { STEPS = 20, LONG_MS = 60000, RESTS_MS = 1000000000000000 }

-- The share of a rate at a time (µs), when that step began and when it ends, µs; only 1 once all of the rate applies.
-- rises: `rampUp` of the shape, nil if it has none; since_ms: when the rate begins to rise, nil if it does not
function ramp.share(rises, since_ms, now)
  if not rises or not since_ms then return 1 end
  local step = rises.overMs * 1000 / ramp.STEPS
  local n = math.max(0, math.floor((now - since_ms * 1000) / step))
  if n >= ramp.STEPS then return 1 end
  local began = math.floor(since_ms * 1000 + n * step)
  local share = rises.shape == 'exponential' and rises.from ^ (1 - n / ramp.STEPS) or rises.from + (1 - rises.from) * n / ramp.STEPS
  return share, began, math.ceil(since_ms * 1000 + (n + 1) * step)
end

-- A pause from a time on, or one that goes on and becomes longer. known: the kept record of an earlier one, or nil.
-- Returns the record to keep: from, when it began, and since, when it ends, ms; rose, how far the rate had risen then,
-- ms, if it was rising. A short pause holds the rise: the downstream does not warm up meanwhile, so that the rise goes
-- on after it where it was. A rate that rests does so until a job departs.
function ramp.paused(known, from_ms, ends_ms)
  if known and known.since == ramp.RESTS_MS then return known end
  if known and known.from and known.since > from_ms then
    return { from = known.from, since = math.max(known.since, ends_ms), rose = known.rose }
  end
  local began = known and ramp.began(known)
  return { from = from_ms, since = ends_ms, rose = began and from_ms - began or nil }
end

-- A pause ends now. Returns the same; what is no pause, or has ended already, stays as it is.
function ramp.resumed(known, now_ms)
  if not known or not known.from or known.since <= now_ms then return known end
  return { from = known.from, since = now_ms, rose = known.rose }
end

-- When the rate begins to rise, or would have begun without the short pauses since, ms; nil if it does not rise.
function ramp.began(known)
  if not known.from or known.since - known.from >= ramp.LONG_MS then return known.since end
  return known.rose and known.since - known.rose
end

-- The record to keep for a rate that rises from a time on without a pause before, or nil: from the next departure.
function ramp.begins(since_ms)
  return { since = since_ms or ramp.RESTS_MS }
end

-- When the first step of a rate ends that begins to rise at a time (µs), ms.
function ramp.step_ms(rises, since)
  return math.ceil(since / 1000 + rises.overMs / ramp.STEPS)
end

-- How long after its last slot a bucket rests, µs: the time until a bucket that was full then would be empty, by the
-- slowest rate that spaces out its jobs, plus `afterIdleMs`; nil without that. configured: µs per unit of the whole
-- rate; interval: the current one
function ramp.rests_us(rises, configured, interval, burst)
  local idle_ms = rises and rises.afterIdleMs
  return idle_ms and idle_ms * 1000 + burst * math.max(interval, configured / rises.from) or nil
end

return ramp
