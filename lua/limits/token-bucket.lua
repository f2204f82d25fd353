local limit_state = use 'limits/state'

-- The token bucket: tokens are refilled one by one up to the burst; a decision takes some, and may owe them for a time
-- ahead.
--   l.interval  µs per token
--   l.burst     tokens that the bucket holds
local function open(key, l, now, packed)
  local stored, elapsed, ahead = limit_state.load_bucket(key, l, now, packed)
  return { key = key, now = now, stored = stored or l.burst, elapsed = elapsed or 0, ahead = ahead or -math.huge }
end

local function tokens(s, l)
  return math.min(l.burst, s.stored + s.elapsed / l.interval)
end

-- Computed from the stored values, so that a caller that returns at the given time gets the same sum.
local function earliest(s, l, cost)
  return math.max(0, (math.min(cost, l.burst) - math.min(s.stored, l.burst)) * l.interval - s.elapsed)
end

-- Up to a time ahead, no more than the burst accumulates.
local function charge(s, l, cost, offset)
  s.stored, s.elapsed = math.min(tokens(s, l), l.burst - offset / l.interval) - cost, 0
  s.ahead = math.max(s.ahead, offset)
end

local function adjust(s, l, cost)
  s.stored, s.elapsed = math.min(l.burst, tokens(s, l) - cost), 0
end

local function save(s, l)
  limit_state.keep(s, l, math.max(0, (l.burst - s.stored) * l.interval), s.stored)
end

local function view(s, l)
  return tokens(s, l), s.now + math.max(0, math.ceil((l.burst - s.stored) * l.interval - s.elapsed))
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, take_back = limit_state.take_back, save = save,
  view = view,
}
