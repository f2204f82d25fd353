-- A slow start: after a long pause, a rate rises from a part of itself to all of it (`rampUp` of the shape), in steps. Each
-- begins at what the straight line has at its beginning, so that no rate is above that line.
local ramp = { STEPS = 20, LONG_MS = 60000 }

-- The share of a rate that is in force at a time (µs), when that step began and when it ends, µs; 1 alone once all of it is.
-- rises: {from, overMs} of the shape, nil if it has none; since_ms: when the pause ended, or will
function ramp.share(rises, since_ms, now)
  if not rises then return 1 end
  local step = rises.overMs * 1000 / ramp.STEPS
  local n = math.max(0, math.floor((now - since_ms * 1000) / step))
  if n >= ramp.STEPS then return 1 end
  local began = math.floor(since_ms * 1000 + n * step)
  return rises.from + (1 - rises.from) * n / ramp.STEPS, began, math.ceil(since_ms * 1000 + (n + 1) * step)
end

-- A pause begins, or becomes longer. known: what was kept of one before, or nil. Returns what is to be kept: from, since when
-- it lasts, and since, when it ends, ms.
function ramp.paused(known, now_ms, ends_ms)
  return { from = known and known.since > now_ms and known.from or now_ms, since = ends_ms }
end

-- A pause ends now. The same; one that has ended before stays as it is.
function ramp.resumed(known, now_ms)
  if not known or known.since <= now_ms then return known end
  return { from = known.from, since = now_ms }
end

-- Whether a rate rises after this pause.
function ramp.is_long(pause)
  return pause.since - pause.from >= ramp.LONG_MS
end

return ramp
