-- Searches for the rate under an unknown limit: AIMD (Chiu and Jain 1989; standards of TCP: once per round trip, and
-- only a rate that is used may grow), with a short way back to where the limit is known (after CUBIC, RFC 9438).
--   interval   µs per unit
--   wall       interval at which the downstream refused; `passed` once the rate went beyond it
--   held       shortest interval without a refusal for as long as pacing.quiet says, since it fell last
--   guess      set if the current rate was not reached by a climb (it fell, or returned to `held`) and is not proven
--              yet
--   patience   quiet periods to wait before the wall is tried again: 2, doubled each time the same wall holds, up to 8
--   waited, climbs   quiet periods waited at the wall; steps since it fell, or since the wall was passed
--   slow_start set after a long pause, while the rate doubles up to the wall
--   at, oks    start of the quiet period (ms), and successful calls since then
--   increase, quietMs   parameters of the last worker that slowed it
local PATIENCE, MAX_PATIENCE = 2, 8
-- Up to this share of the wall, or of the rate that held, the way back is short: each step takes a tenth of a quiet
-- period.
local NEAR = 0.96
local FAST = 10
-- Walls this close to each other count as the same.
local SAME_WALL = 0.05
local SLOW_START = 8
-- Steps stop doubling after this many.
local MAX_CLIMBS = 6

local pacing = {}

function pacing.new(interval, wall, patience, adapt, now_ms)
  return {
    interval = interval, wall = wall, patience = patience, waited = 0, climbs = 0, at = now_ms, oks = 0,
    increase = adapt.increase, quietMs = adapt.quietMs,
  }
end

-- The interval still known to hold after `current` was refused, or nil.
function pacing.still_held(before, current)
  local held = before and before.held
  -- It was tried once more, and refused.
  if not held or (before.guess and current >= held) then return nil end
  return math.max(held, current)
end

-- before: the pace so far, or nil; current: the interval that was refused; interval: that of the lower rate
function pacing.refused(before, current, interval, adapt, now_ms)
  local held = pacing.still_held(before, current)
  -- If the refused rate is far above the one that held, the limit is nearer to the latter.
  local wall = held and held / current - 1 > SAME_WALL and held or current
  local is_same = before and before.wall and math.abs(wall / before.wall - 1) <= SAME_WALL
  local patience = is_same and math.min(MAX_PATIENCE, before.patience * 2) or PATIENCE
  local pace = pacing.new(interval, wall, patience, adapt, now_ms)
  pace.held, pace.guess = held, true
  return pace
end

-- Starts at an eighth of the rate that was refused.
function pacing.slow_start(before, current, floor, adapt, now_ms)
  local wall = before and not before.passed and before.wall or current
  local interval = math.max(current, math.min(wall * SLOW_START, floor))
  local pace = pacing.new(interval, wall, before and before.patience or PATIENCE, adapt, now_ms)
  pace.held, pace.guess, pace.slow_start = before and before.held, true, true
  return pace
end

-- The rate below the wall up to which the way back is short, or nil if it is not.
function pacing.near(pace)
  local near = pace.wall and not pace.passed and NEAR / pace.wall
  return near and 1 / pace.interval < near * 0.9999 and near
end

-- ms
function pacing.quiet(pace)
  return pacing.near(pace) and pace.quietMs / FAST or pace.quietMs
end

function pacing.step(pace)
  pace.climbs = math.min(pace.climbs + 1, MAX_CLIMBS)
  return pace.increase * 2 ^ pace.climbs
end

-- Nothing was refused at the current interval.
function pacing.holds(pace)
  pace.guess, pace.held = nil, math.min(pace.held or pace.interval, pace.interval)
end

-- The next rate below the wall: at once the one that held; beyond it the limit is unknown, so each step doubles.
function pacing.approach(pace, rate, near)
  if pace.slow_start then return math.min(rate * 2, near) end
  pacing.holds(pace)
  local known = NEAR / pace.held
  if rate < known * 0.9999 then
    pace.guess = true
    return math.min(known, near)
  end
  return math.min(rate * (1 + pacing.step(pace)), near)
end

-- After a quiet period: the next interval, or nil to wait for another. configured: interval of the shape's rate
function pacing.climb(pace, configured)
  local rate, near = 1 / pace.interval, pacing.near(pace)
  if near then return 1 / pacing.approach(pace, rate, near) end
  pacing.holds(pace)
  pace.slow_start = nil
  if pace.wall and not pace.passed then
    pace.waited = pace.waited + 1
    if pace.waited < pace.patience then return nil end
    pace.passed, pace.climbs = true, 0
    return 1 / (rate + pace.increase / configured)
  end
  -- Beyond the wall the limit is unknown as well, so steps double again.
  return 1 / (rate + pacing.step(pace) / configured)
end

-- After a quiet period in which the rate was used: the interval before and the one reached, which is never less than
-- the configured one; nil if it does not rise. since_ms: when the period began; mean_cost: per call counted in pace.oks
function pacing.rise(pace, configured, now_ms, since_ms, mean_cost)
  local waited = now_ms - since_ms
  if waited < pacing.quiet(pace) then return nil end
  -- If the configured rate is lower, this one does not apply, and successful calls prove nothing about it.
  local used = pace.interval >= configured and pace.oks * mean_cost * pace.interval * 2 >= waited * 1000
  local from = pace.interval
  pace.at, pace.oks = now_ms, 0
  local interval = used and pacing.climb(pace, configured)
  if not interval then return nil end
  pace.interval = interval
  return from, math.max(interval, configured)
end

return pacing
