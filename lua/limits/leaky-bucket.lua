local limit_state = use 'limits/state'

-- The leaky bucket as a meter: a level that falls steadily; a decision raises it, never above the burst.
--   l.interval  µs in which one unit leaks out
--   l.burst     units that the bucket holds
local function open(key, l, now, packed)
  local stored, elapsed, ahead = limit_state.load_bucket(key, l, now, packed)
  return { key = key, now = now, stored = stored or 0, elapsed = elapsed or 0, ahead = ahead or -math.huge }
end

local function level(s, l)
  return math.max(0, s.stored - s.elapsed / l.interval)
end

-- Computed from the stored values, so that a caller that returns at the given time gets the same sum.
local function earliest(s, l, cost)
  return math.max(0, (s.stored + math.min(cost, l.burst) - l.burst) * l.interval - s.elapsed)
end

-- A charge at a time ahead applies to a bucket that may have drained by then.
local function charge(s, l, cost, offset)
  s.stored, s.elapsed = math.max(level(s, l), offset / l.interval) + cost, 0
  s.ahead = math.max(s.ahead, offset)
end

local function adjust(s, l, cost)
  s.stored, s.elapsed = math.max(0, level(s, l) + cost), 0
end

local function save(s, l)
  limit_state.keep(s, l, s.stored * l.interval, s.stored)
end

local function view(s, l)
  return l.burst - level(s, l), s.now + math.max(0, math.ceil(s.stored * l.interval - s.elapsed))
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, take_back = limit_state.take_back, save = save,
  view = view,
}
