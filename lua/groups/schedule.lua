local schedule = use 'admission/schedule'
local group_limits_of = use 'groups/limits-of'
local as_text = use 'redis/as-text'

-- The coming departures of one group, or of one of its lanes, by its limits alone (groups/limits-of), as if no other group or
-- lane were there.
local group_schedule = {}

-- Number of waiting jobs of a group. Of those without a group also how many are in the wait list, and how many of BullMQ's
-- set go before the others: those of groups.
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
  for _, part in ipairs(limits.open(group, place and place.keys)) do
    part.s.planned, part.sum = {}, 0
    if part.l.mode ~= 'off' then p.parts[#p.parts + 1] = part end
  end
  return p
end

-- A function that computes when the n-th job of a group leaves, µs, and the name of the limit that holds it; from: until when
-- it is held anyway; place: of a lane (groups.place_in_lane), whose n-th job is meant then. Nil if no limit per group is enforced.
function group_schedule.of(g, shape)
  local limits, open = g.enforced and group_limits_of(g.base, shape, g.now), {}
  if not limits then return nil end
  return function(group, n, from, place)
    local known = place and place.lane or group
    open[known] = open[known] or group_schedule.open(g, limits, group, from, place)
    return (schedule.nth(open[known], n)), open[known].limit
  end
end

return group_schedule
