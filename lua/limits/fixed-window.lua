local limit_state = use 'limits/state'

-- The fixed window: one counter, and the start of its window. At a boundary up to twice the limit passes.
--   l.limit   units per window
--   l.window  µs; for the calendar's, a day of 24 hours, a week of 7 of them or a month of 30
--   l.align   'epoch': consecutive windows from 1970 on; 'first': a window begins with its first unit; 'day', 'week'
--             (from Monday on) and 'month': of the calendar
--   l.zone    for the calendar's: offsets of the time zone, {from (s since 1970), offset (s)} pairs in one list, by
--             time
local DAY_S = 86400
-- Zones are 26 hours apart at most: a limit that gets another one may still be in a day that has ended here, µs.
local OTHER_ZONE_US = 26 * 3600 * 1000000
local LONGEST_MONTH = 31

local function zone_offset(l, at_s)
  local offset = l.zone[2]
  for i = 1, #l.zone, 2 do
    if l.zone[i] > at_s then break end
    offset = l.zone[i + 1]
  end
  return offset
end

-- Midnight as the clocks of the zone showed it, if they did.
local function day_start(l, at_s)
  local midnight = math.floor((at_s + zone_offset(l, at_s)) / DAY_S) * DAY_S
  local start = midnight - zone_offset(l, at_s)
  start = midnight - zone_offset(l, start)
  -- If the clocks went back across it, midnight came twice: the day began with the first.
  return math.min(start, midnight - zone_offset(l, start - 1)) * 1000000
end

-- Days are numbered from 1970 on. Noon belongs to its day, however the clocks change.
local function day_begins(l, day)
  local noon = day * DAY_S + DAY_S / 2
  return day_start(l, noon - zone_offset(l, noon))
end

-- The first day of a day's month, by the Gregorian calendar: years from March on, which repeat after 400.
local function month_first(day)
  local in_era = (day + 719468) % 146097
  local year = math.floor(
    (in_era - math.floor(in_era / 1460) + math.floor(in_era / 36524) - math.floor(in_era / 146096)) / 365)
  local in_year = in_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * in_year + 2) / 153)
  return day - (in_year - math.floor((153 * month + 2) / 5))
end

-- The first day of the window of a day, and of the window after that.
local function first_days(l, day)
  if l.align == 'day' then return day, day + 1 end
  -- 1 January 1970 was a Thursday.
  if l.align == 'week' then day = day - (day + 3) % 7 return day, day + 7 end
  local first = month_first(day)
  return first, month_first(first + LONGEST_MONTH)
end

-- When the window that a time lies in starts and ends.
local function window_of(l, at)
  if l.align == 'first' then return at, at + l.window end
  if not l.zone then
    local start = at - at % l.window
    return start, start + l.window
  end
  local at_s = math.floor(at / 1000000)
  local first, next_first = first_days(l, math.floor((at_s + zone_offset(l, at_s)) / DAY_S))
  return day_begins(l, first), day_begins(l, next_first)
end

-- s.start may lie ahead, if a caller waits for that window. s.opening: units charged for s.start itself.
local function open(key, l, now, packed)
  local seen, kept, used, opening = limit_state.load(key, packed)
  local s = { key = key, now = now, used = 0, opening = 0 }
  local start, finish = window_of(l, now)
  if seen then
    -- A clock that went back takes the window with it; a window ahead of it stays as far ahead.
    if now < seen then
      local ahead = l.align == 'first' and kept - seen or math.max(0, kept - seen)
      kept = window_of(l, now + ahead)
    end
    local kept_finish = kept == start and finish or select(2, window_of(l, kept))
    if kept >= start or (l.align == 'first' and now < kept_finish) then
      start, finish, s.used, s.opening = kept, kept_finish, used, opening
    -- Another zone has days of its own: what was charged in this one counts in it, with what came before.
    elseif seen >= start then s.used = used end
  end
  s.start, s.finish = start, finish
  return s
end

-- Units were charged to a window ahead because the current one is used up.
local function earliest(s, l, cost)
  local fits = s.used == 0 or s.used + cost <= l.limit
  return math.max(0, (fits and s.start or s.finish) - s.now)
end

local function charge(s, l, cost, offset)
  local at = s.now + math.ceil(offset)
  if at >= s.finish or (s.used == 0 and at > s.start) then
    s.used = 0
    s.start, s.finish = window_of(l, at)
  end
  if s.used == 0 then s.opening = 0 end
  if at <= s.start then s.opening = s.opening + cost end
  s.used = s.used + cost
end

local function adjust(s, l, cost)
  s.used = math.max(0, s.used + cost)
end

-- If this was the only charge for its start, another one would begin a window that begins with its first unit, at an
-- unknown time.
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
  s.used, s.opening = used, opening
  s.start, s.finish = window_of(l, start)
end

-- How long a state matters, µs.
local function lasts(s, l)
  return s.finish - s.now + (l.zone and OTHER_ZONE_US or 0)
end

local function save(s, l)
  limit_state.store(s.key, lasts(s, l), s.now, s.start, s.used, s.opening)
end

local function view(s, l)
  -- If the next window is in use, the current one is used up.
  if s.start > s.now then return 0, s.used > 0 and s.finish or s.start end
  return l.limit - s.used, s.finish
end

return {
  open = open, earliest = earliest, charge = charge, adjust = adjust, take_back = take_back, begin = begin, save = save,
  lasts = lasts, view = view, window_of = window_of,
}
