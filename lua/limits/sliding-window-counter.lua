local limit_state = use 'limits/state'

-- The sliding window counter: the current window's count, plus the last one's as far as it still reaches into a window
-- that ends now. An estimate: it assumes that the last window's units were evenly spread.
--   l.limit   units per window
--   l.window  µs
local function aligned(l, at)
  return at - at % l.window
end

-- Switches to the window that begins at `start`.
local function roll(s, l, start)
  if start <= s.start then return end
  s.before = start == s.start + l.window and s.used or 0
  s.used, s.start = 0, start
end

local function open(key, l, now, packed)
  local seen, kept, used, before = limit_state.load(key, packed)
  local start = aligned(l, now)
  local s = { key = key, now = now, start = start, used = 0, before = 0 }
  if not seen then return s end
  -- A clock that went back takes the window with it; a window ahead of it stays as far ahead.
  if now < seen then kept = aligned(l, now + math.max(0, kept - seen)) end
  s.start, s.used, s.before = kept, used, before
  roll(s, l, start)
  return s
end

-- The part of this window after which the last one leaves room: 0 at its beginning, 1 at its end; infinite if never.
local function fraction(used, before, l, cost)
  if used + cost > l.limit then return math.huge end
  if before == 0 then return 0 end
  return math.max(0, 1 - (l.limit - used - cost) / before)
end

local function earliest(s, l, cost)
  local used, before, start = s.used, s.before, s.start
  cost = math.min(cost, l.limit)
  for _ = 1, 3 do
    local wait = fraction(used, before, l, cost) * l.window
    if wait < l.window then return math.max(0, start - s.now + math.ceil(wait)) end
    used, before, start = 0, used, start + l.window
  end
end

local function charge(s, l, cost, offset)
  roll(s, l, aligned(l, s.now + math.ceil(offset)))
  s.used = s.used + cost
end

local function adjust(s, _, cost)
  s.used = math.max(0, s.used + cost)
end

local function take_back(s, l, cost, slot)
  local start = aligned(l, slot)
  if start == s.start then
    s.used = math.max(0, s.used - cost)
  elseif start == s.start - l.window then
    s.before = math.max(0, s.before - cost)
  else
    return false
  end
  return true
end

local function save(s, l)
  local lasts = s.start + 2 * l.window - s.now
  limit_state.store(s.key, lasts, s.now, s.start, s.used, s.before)
end

local function view(s, l)
  local reaches = math.min(1, math.max(0, 1 - (s.now - s.start) / l.window))
  local reset = s.now
  if s.before > 0 then reset = s.start + l.window end
  if s.used > 0 then reset = s.start + 2 * l.window end
  return l.limit - s.used - s.before * reaches, reset
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, take_back = take_back, save = save, view = view,
}
