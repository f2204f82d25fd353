local limit_state = use 'limits/state'

-- The fixed window: one counter, and the start of its window. At a boundary up to twice the limit passes.
--   l.limit   units per window
--   l.window  µs; for calendar days a day of 24 hours
--   l.align   'epoch': consecutive windows from 1970 on; 'first': a window begins with its first unit; 'day'
--   l.zone    for 'day': offsets of the time zone, {from (s since 1970), offset (s)} pairs in one list, by time
local DAY_S = 86400
-- Longer than the longest day and shorter than the two shortest.
local NEXT_DAY_S = 91800

local function zone_offset(l, at_s)
  local offset = l.zone[2]
  for i = 1, #l.zone, 2 do
    if l.zone[i] > at_s then break end
    offset = l.zone[i + 1]
  end
  return offset
end

-- Midnight as the clocks of the zone showed it, if they did.
local function day_start(l, at)
  local at_s = math.floor(at / 1000000)
  local midnight = math.floor((at_s + zone_offset(l, at_s)) / DAY_S) * DAY_S
  local start = midnight - zone_offset(l, at_s)
  start = midnight - zone_offset(l, start)
  -- If the clocks went back across it, midnight came twice: the day began with the first.
  return math.min(start, midnight - zone_offset(l, start - 1)) * 1000000
end

-- The start of the window that a time lies in.
local function aligned(l, at)
  if l.align == 'first' then return at end
  if l.align == 'day' then return day_start(l, at) end
  return at - at % l.window
end

local function finish(l, start)
  if l.align == 'day' then return day_start(l, start + NEXT_DAY_S * 1000000) end
  return start + l.window
end

-- s.start may lie ahead, if a caller waits for that window. s.opening: units charged for s.start itself.
local function open(key, l, now, packed)
  local seen, kept, used, opening = limit_state.load(key, packed)
  local s = { key = key, now = now, used = 0, opening = 0 }
  local start = aligned(l, now)
  if seen then
    -- A clock that went back takes the window with it; a window ahead of it stays as far ahead.
    if now < seen then
      local ahead = l.align == 'first' and kept - seen or math.max(0, kept - seen)
      kept = aligned(l, now + ahead)
    end
    if kept >= start or (l.align == 'first' and now < finish(l, kept)) then
      s.start, s.used, s.opening = kept, used, opening
    end
  end
  s.start = s.start or start
  s.finish = finish(l, s.start)
  return s
end

-- Units of a window ahead were charged there because the current one is used up.
local function earliest(s, l, cost)
  local fits = s.used == 0 or s.used + cost <= l.limit
  return math.max(0, (fits and s.start or s.finish) - s.now)
end

local function charge(s, l, cost, offset)
  local at = s.now + math.ceil(offset)
  if at >= s.finish or (s.used == 0 and at > s.start) then
    s.start, s.used = aligned(l, at), 0
    s.finish = finish(l, s.start)
  end
  if s.used == 0 then s.opening = 0 end
  if at <= s.start then s.opening = s.opening + cost end
  s.used = s.used + cost
end

local function adjust(s, l, cost)
  s.used = math.max(0, s.used + cost)
end

-- Another charge would begin a window that begins with its first unit, if this was the only one for its start: when is
-- not known here.
local function take_back(s, l, cost, slot)
  if slot < s.start or slot >= s.finish or s.used == 0 then return false end
  if l.align == 'first' and slot == s.start then
    if cost >= s.opening and cost < s.used then return false end
    s.opening = math.max(0, s.opening - cost)
  end
  s.used = math.max(0, s.used - cost)
  return true
end

local function begin(s, l, start, used, opening)
  s.start, s.used, s.opening, s.finish = start, used, opening, finish(l, start)
end

local function save(s)
  limit_state.store(s.key, s.finish - s.now, s.now, s.start, s.used, s.opening)
end

local function view(s, l)
  -- If the next window is in use, the current one is used up.
  if s.start > s.now then return 0, s.used > 0 and s.finish or s.start end
  return l.limit - s.used, s.finish
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, take_back = take_back, begin = begin, save = save,
  view = view,
}
