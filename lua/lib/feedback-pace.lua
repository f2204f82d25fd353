-- The rate that is looked for under a limit that nobody names: AIMD (Chiu and Jain 1989; standards of TCP: once per round
-- trip, and only what is used may grow), whose way back is short where it is known (after CUBIC, RFC 9438).
--   interval   µs per unit
--   wall       interval at which the other side refused; passed once it was left behind
--   held       shortest interval that nothing was refused at for a quiet period
--   guess      whether the interval in force was only set, and has held for no period yet
--   patience   quiet periods to wait before the wall is tried again: 2, doubled each time it holds, up to 8
--   waited, climbs   quiet periods waited at the wall; steps since it fell, or since the wall was passed
--   slow_start after a long pause the rate doubles up to the wall
--   at, oks    since when, and how many calls went well since
--   increase, quietMs   parameters of the last who slowed it
local PATIENCE, MAX_PATIENCE = 2, 8
-- Below a rate that is known the way back is short: a tenth of a quiet period, up to this share of it.
local NEAR = 0.96
local FAST = 10
-- The rate is the wall's again where it is that close to it.
local SAME_WALL = 0.05
local SLOW_START = 8
-- Steps stop doubling there.
local MAX_CLIMBS = 6

local function pace_new(interval, wall, patience, adapt, now_ms)
  return {
    interval = interval, wall = wall, patience = patience, waited = 0, climbs = 0, at = now_ms, oks = 0,
    increase = adapt.increase, quietMs = adapt.quietMs,
  }
end

-- before: the pace until now, or nil; current: the interval that was refused; interval: that of the lower rate
local function pace_refused(before, current, interval, adapt, now_ms)
  local same = before and before.wall and math.abs(current / before.wall - 1) <= SAME_WALL
  local pace = pace_new(interval, current, same and math.min(MAX_PATIENCE, before.patience * 2) or PATIENCE, adapt, now_ms)
  -- What was refused before it had held for a period disproves what it was taken from.
  if before and before.held and not before.guess then
    pace.held = math.max(before.held, current)
    -- Far above it, the limit lies nearer to what held.
    if pace.held / current - 1 > SAME_WALL then pace.wall = pace.held end
  end
  pace.guess = true
  return pace
end

-- From an eighth of the rate at which it refused.
local function pace_slow_start(before, current, floor, adapt, now_ms)
  local wall = before and not before.passed and before.wall or current
  local interval = math.max(current, math.min(wall * SLOW_START, floor))
  local pace = pace_new(interval, wall, before and before.patience or PATIENCE, adapt, now_ms)
  pace.slow_start = true
  return pace
end

-- The rate under the wall up to which the way is short, or nil where it is not.
local function pace_near(pace)
  local near = pace.wall and not pace.passed and NEAR / pace.wall
  return near and 1 / pace.interval < near * 0.9999 and near
end

-- ms
local function pace_quiet(pace)
  return pace_near(pace) and pace.quietMs / FAST or pace.quietMs
end

local function pace_step(pace)
  pace.climbs = math.min(pace.climbs + 1, MAX_CLIMBS)
  return pace.increase * 2 ^ pace.climbs
end

-- The next rate below the wall: what held is returned to at once, beyond it nobody knows, so each step doubles.
local function pace_approach(pace, rate, near)
  if pace.slow_start then return math.min(rate * 2, near) end
  local known = pace.held and NEAR / pace.held or 0
  if rate < known * 0.9999 then
    pace.guess = true
    return math.min(known, near)
  end
  return math.min(rate * (1 + pace_step(pace)), near)
end

-- After a quiet period: the next interval, or nil to wait for another. configured: interval of the shape's rate
local function pace_climb(pace, configured)
  local rate, near = 1 / pace.interval, pace_near(pace)
  if not pace.slow_start then pace.guess, pace.held = nil, math.min(pace.held or pace.interval, pace.interval) end
  if near then return 1 / pace_approach(pace, rate, near) end
  if pace.wall and not pace.passed then
    pace.waited = pace.waited + 1
    if pace.waited < pace.patience then return nil end
    pace.passed, pace.climbs = true, 0
    return 1 / (rate + pace.increase / configured)
  end
  -- Behind the wall nobody knows how far it goes either.
  return 1 / (rate + pace_step(pace) / configured)
end
