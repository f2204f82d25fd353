local bucket = use 'meter/bucket'

-- The service of a rate that follows the clock: S(t), the integral of the rate, in µs at the fastest rate of its
-- schedule. It is piecewise linear and never falls; a bucket (meter/bucket) counts in it as it does in time at a fixed
-- rate. Values are rounded down to the bucket's grid, each piece by itself, so that a difference does not depend on
-- where the list begins.
--   s.starts   when each entry of a week begins, µs since Monday 00:00 on the local clock, the first at 0
--   s.speeds   how fast each is served, as a part of the fastest rate: 0 where the schedule is closed
--   s.offsets  {from (s since 1970), offset of the zone (s)} in one list, by time
--   s.week     the service of a week without a change of the offset
--   s.t, s.v   the pieces computed so far: when each begins (µs since 1970), and the service until then; one more than
--              s.slope
--   s.skipped  the first piece of many whole weeks, nil for none. Times within it are unknown.
local service = {}

local WEEK_US, DAY_US = 604800000000, 86400000000
-- 1 January 1970 was a Thursday.
local MONDAY_US = 4 * DAY_US
-- KEPT pieces are kept. On the way to a far time, this many weeks or more are one piece.
local KEPT, WEEKS = 2000, 9

local function units(us)
  return math.floor(us * 1024) / 1024
end

-- rate: {limit, period ms, a schedule}, as src/shape/schedule.ts encodes it: {zone, entries: {days, from, to, limit,
-- period ms}, week: {minute, entry} in one list, offsets}; interval: the current µs per unit, a bound for the
-- schedule's rates. Nil for a fixed rate.
function service.of(rate, interval)
  local schedule = rate[3]
  if not schedule or not interval then return nil end
  local s = { starts = {}, speeds = {}, offsets = schedule[4], week = 0, t = {}, v = {}, slope = {} }
  for i = 1, #schedule[3], 2 do
    local entry = schedule[2][schedule[3][i + 1]]
    local own = entry[4] > 0 and bucket.interval({ entry[4], entry[5] })
    s.starts[#s.starts + 1] = schedule[3][i] * 60000000
    s.speeds[#s.speeds + 1] = own and math.min(1, interval / own) or 0
  end
  for i, speed in ipairs(s.speeds) do s.week = s.week + units(((s.starts[i + 1] or WEEK_US) - s.starts[i]) * speed) end
  return s
end

-- The piece of a time: its speed, when it begins and when it ends; when its entry began, and when the offset changes.
local function piece(s, us)
  local offsets, at = s.offsets, 1
  while offsets[at + 2] and offsets[at + 2] * 1000000 <= us do at = at + 2 end
  local since_week = (us + offsets[at + 1] * 1000000 - MONDAY_US) % WEEK_US
  local i = #s.starts
  while s.starts[i] > since_week do i = i - 1 end
  local entry = us - (since_week - s.starts[i])
  local ends, switch = us + (s.starts[i + 1] or WEEK_US) - since_week, (offsets[at + 2] or math.huge) * 1000000
  local began = at > 1 and math.max(entry, offsets[at] * 1000000) or entry
  return s.speeds[i], began, math.min(ends, switch), entry, switch
end

local function served(s, i, us)
  return s.v[i] + units((us - s.t[i]) * s.slope[i])
end

-- weeks: how many whole weeks may be skipped
local function extend(s, weeks)
  local n = #s.t
  local slope, _, ends, entry, switch = piece(s, s.t[n])
  weeks = entry == s.t[n] and math.min(weeks, math.floor((switch - entry) / WEEK_US)) or 0
  if weeks >= WEEKS then
    s.skipped = s.skipped or n
    s.slope[n], s.t[n + 1], s.v[n + 1] = 0, entry + weeks * WEEK_US, s.v[n] + weeks * s.week
    return
  end
  s.slope[n], s.t[n + 1] = slope, ends
  s.v[n + 1] = served(s, n, ends)
end

local function begin(s, from)
  local _, began = piece(s, from)
  s.t, s.v, s.slope, s.skipped = { began }, { 0 }, {}, nil
end

-- Ensures that the pieces reach from one time to another. by_weeks: whether those in between do not matter
local function reach(s, from, to, by_weeks)
  if not s.t[1] or from < s.t[1] or #s.t > KEPT or (s.skipped and to >= s.t[s.skipped]) then begin(s, from) end
  while s.t[#s.t] <= to do
    local ends = s.t[#s.t]
    local skips_to = ends <= from and from or by_weeks and to or ends
    extend(s, math.floor((skips_to - ends) / WEEK_US))
  end
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
  reach(s, from, to, true)
  return at(s, to) - at(s, from)
end

-- The first time at which more than `more` units have been served since `from` (µs since 1970, whole); with a negative
-- number, the last time up to which no more are. Where the schedule is closed, that is when it opens.
function service.after(s, from, more)
  local first = from
  reach(s, first, from)
  while at(s, from) + more < 0 and from - first < 64 * DAY_US do
    first = from - math.max(DAY_US, 2 * (from - first))
    reach(s, first, from)
  end
  local target = at(s, from) + more
  if s.skipped and target >= s.v[s.skipped] then
    begin(s, from)
    reach(s, from, from)
    target = at(s, from) + more
  end
  while s.v[#s.v] <= target do extend(s, math.floor((target - s.v[#s.v]) / s.week)) end
  local i = last_up_to(s.v, target)
  if target < s.v[i] then return s.t[1] end
  local us = math.ceil(s.t[i] + (target - s.v[i]) / s.slope[i])
  if served(s, i, us) < target then us = us + 1 end
  return more < 0 and us or math.max(us, from)
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
