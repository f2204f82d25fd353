local schedule = use 'admission/schedule'
local group_limits_of = use 'groups/limits-of'
local limit_checks = use 'limits/checks'
local queue_limits = use 'limits/queue-limits'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- The coming departures of one group, or of one of its lanes, by its limits alone (groups/limits-of), without other
-- groups or lanes.
local group_schedule = {}

-- Number of waiting jobs of a group. For jobs without a group also how many are in the wait list, and how many of
-- BullMQ's set go before the others: jobs of groups.
function group_schedule.waiting(g, group)
  if g.lanes or group ~= '' then return redis.call('ZCARD', g.base .. 'meta:group:jobs:' .. group), 0, 0 end
  local listed, key = redis.call('LLEN', g.base .. 'wait'), g.base .. 'prioritized'
  local skipped = redis.call('ZCOUNT', key, '-inf', '(' .. as_text.us(g.BAND))
  return listed + redis.call('ZCARD', key) - skipped, listed, skipped
end

-- The same number; second, the id of the n-th of them, nil if there is none.
function group_schedule.jobs(g, group)
  local count, listed, skipped = group_schedule.waiting(g, group)
  if g.ageing then return count, g.ageing.order(g:line(group)) end
  local key = (g.lanes or group ~= '') and g.base .. 'meta:group:jobs:' .. group or g.base .. 'prioritized'
  return count, function(n)
    if n <= listed then return redis.call('LINDEX', g.base .. 'wait', -n) end
    local rank = n - listed - 1 + skipped
    return redis.call('ZRANGE', key, rank, rank)[1]
  end
end

function group_schedule.open(g, limits, group, from, place)
  local ready, id_at
  if place then ready, id_at = g:lane_order(place.lane) else ready, id_at = group_schedule.jobs(g, group) end
  local p = {
    base = g.base, now = g.now, times = {}, parts = {}, read = 0, sum = 0, left = math.huge, ready = ready, id_at = id_at,
    offset = math.max(0, from - g.now),
  }
  local keys, first = place and place.keys, not place and limits.tiered and id_at(1)
  -- For a group, the tier of the first job stands for all.
  if first then keys = select(5, job_options.cost_of_job(g.base .. first)) end
  for _, part in ipairs(limits.open(group, keys)) do
    part.s.planned, part.sum = {}, 0
    -- If one job of a lane takes nothing of a limit, none does.
    local comes = place and place.comes
    local is_free = comes and queue_limits.cost(part.l, comes.cost, comes.costs) == 0
    -- The time when places are free is unknown.
    local has_places = part.l.algorithm == 'concurrency'
    if part.l.mode ~= 'off' and not (is_free or has_places) then p.parts[#p.parts + 1] = part end
  end
  return p
end

-- When a new job with `before` others of its lane ahead departs, µs, by its own cost. If not all are computed one by
-- one, the time of the last computed one.
local function start_of_new(p, before, comes)
  local start = before > 0 and (schedule.nth(p, before)) or p.now + math.ceil(p.offset)
  if before > schedule.EXACT_START then return start, p.limit end
  local name = before > 0 and p.limit or nil
  for _, part in ipairs(p.parts) do
    local l = part.l
    part.offset = l.verbs.earliest(part.s, l, queue_limits.cost(l, comes.cost, comes.costs) + l.kept)
    local at = p.now + math.ceil(limit_checks.wait(part))
    if at > start then start, name = at, l.name end
  end
  return start, name
end

-- A function that computes when the n-th job of a group departs, µs, and the name of the limit that holds it; from:
-- until when it is held anyway; place: of a lane (groups.place_in_lane), whose n-th job is then meant, or of a new job
-- there. Nil if no limit per group is enforced.
function group_schedule.of(g, shape)
  local limits, open = g.enforced and group_limits_of(g.base, shape, g.now), {}
  if not limits then return nil end
  return function(group, n, from, place)
    local known = place and place.lane or group
    open[known] = open[known] or group_schedule.open(g, limits, group, from, place)
    if place and place.comes then return start_of_new(open[known], n - 1, place.comes) end
    return (schedule.nth(open[known], n)), open[known].limit
  end
end

return group_schedule
