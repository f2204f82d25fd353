local bucket = use 'meter/bucket'

-- The service of a rate that follows the clock: S(t), the integral of the rate, in µs at the fastest rate of its
-- schedule. It is piecewise linear and never falls; a bucket (meter/bucket) counts in it as it does in time at a fixed
-- rate. Values are rounded down to the bucket's grid, each piece by itself, so that a difference does not depend on
-- where the list begins.
--   s.starts   when each entry of a week begins, µs since Monday 00:00 on the local clock, the first at 0
--   s.speeds   how fast each is served, as a part of the fastest rate: 0 where the schedule is closed
--   s.offsets  {from (s since 1970), offset of the zone (s)} in one list, by time
--   s.t, s.v   the pieces computed so far: when each begins (µs since 1970), and the service until then; one more than
--              s.slope
local service = {}

local WEEK_US, DAY_US = 604800000000, 86400000000
-- 1 January 1970 was a Thursday.
local MONDAY_US = 4 * DAY_US
-- KEPT pieces are kept; a far time is searched through MOST pieces: years.
local KEPT, MOST = 2000, 40000

-- rate: {limit, period ms, a schedule}, as src/shape/schedule.ts encodes it: {zone, entries: {days, from, to, limit,
-- period ms}, week: {minute, entry} in one list, offsets}; interval: the current µs per unit, a bound for the
-- schedule's rates. Nil for a fixed rate.
function service.of(rate, interval)
  local schedule = rate[3]
  if not schedule or not interval then return nil end
  local s = { starts = {}, speeds = {}, offsets = schedule[4], t = {}, v = {}, slope = {} }
  for i = 1, #schedule[3], 2 do
    local entry = schedule[2][schedule[3][i + 1]]
    local own = entry[4] > 0 and bucket.interval({ entry[4], entry[5] })
    s.starts[#s.starts + 1] = schedule[3][i] * 60000000
    s.speeds[#s.speeds + 1] = own and math.min(1, interval / own) or 0
  end
  return s
end

-- The piece of a time: its speed, when it begins and when it ends.
local function piece(s, us)
  local offsets, at = s.offsets, 1
  while offsets[at + 2] and offsets[at + 2] * 1000000 <= us do at = at + 2 end
  local since_week = (us + offsets[at + 1] * 1000000 - MONDAY_US) % WEEK_US
  local i = #s.starts
  while s.starts[i] > since_week do i = i - 1 end
  local began = us - (since_week - s.starts[i])
  local ends = us + (s.starts[i + 1] or WEEK_US) - since_week
  if at > 1 then began = math.max(began, offsets[at] * 1000000) end
  if offsets[at + 2] then ends = math.min(ends, offsets[at + 2] * 1000000) end
  return s.speeds[i], began, ends
end

local function served(s, i, us)
  return s.v[i] + math.floor((us - s.t[i]) * s.slope[i] * 1024) / 1024
end

local function extend(s)
  local n = #s.t
  local slope, _, ends = piece(s, s.t[n])
  s.slope[n], s.t[n + 1] = slope, ends
  s.v[n + 1] = served(s, n, ends)
end

-- Ensures that the pieces reach from one time to another.
local function reach(s, from, to)
  if not s.t[1] or from < s.t[1] or #s.t > KEPT then
    local _, began = piece(s, from)
    s.t, s.v, s.slope = { began }, { 0 }, {}
  end
  while s.t[#s.t] <= to do extend(s) end
end

-- The last piece that begins at or before a value of a list.
local function last_up_to(list, value)
  local low, high = 1, #list
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if list[middle] <= value then low = middle else high = middle end
  end
  return low
end

local function at(s, us)
  return served(s, last_up_to(s.t, us), us)
end

-- The service between two times, the first not after the second: µs at the fastest rate.
function service.between(s, from, to)
  if to <= from then return 0 end
  reach(s, from, to)
  return at(s, to) - at(s, from)
end

-- The first time at which more than `units` have been served since `from` (µs since 1970, whole); with negative
-- `units`, the last time up to which no more are. Where the schedule is closed, that is when it opens.
function service.after(s, from, units)
  local first = from
  reach(s, first, from)
  while at(s, from) + units < 0 and from - first < 64 * DAY_US do
    first = from - math.max(DAY_US, 2 * (from - first))
    reach(s, first, from)
  end
  local target = at(s, from) + units
  while s.v[#s.v] <= target do
    if #s.t > MOST then return math.ceil(s.t[#s.t] + target - s.v[#s.v]) end
    extend(s)
  end
  local i = last_up_to(s.v, target)
  if target < s.v[i] then return s.t[1] end
  local us = math.ceil(s.t[i] + (target - s.v[i]) / s.slope[i])
  if served(s, i, us) < target then us = us + 1 end
  return units < 0 and us or math.max(us, from)
end

-- The speed at a time, and when it changes next.
function service.speed(s, us)
  local speed, _, ends = piece(s, us)
  while ends - us < 8 * DAY_US do
    local next_speed, _, next_ends = piece(s, ends)
    if next_speed ~= speed then break end
    ends = next_ends
  end
  return speed, ends
end

return service
