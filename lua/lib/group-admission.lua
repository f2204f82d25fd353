--- @include "group-adds"
--- @include "group-schedule"
--- @include "places"

-- What the admission of jobs of groups adds to lib/admission: their queue must have groups, and each group has a bound.
--   status  -7 the queue has no groups, -8 a group is full
--   detail  of -8: that of a full queue, with the capacity and the number of jobs of the group, then the group

-- The groups of a queue, for the jobs of one call; nil if it has none.
function grouped.open(base, shape, now)
  if not shape or not shape.groups then return nil end
  return groups_library().open(base, shape, now)
end

-- The group that the text of a job (JSON, '' if it has none) names: {id, priority}.
function grouped.read(text)
  return text ~= '' and cjson.decode(text) or nil
end

-- How many places the jobs of a group may hold.
function grouped.bound(g, shape, s)
  local part = s.share and shape.capacity and math.max(1, math.floor(s.share * shape.capacity)) or math.huge
  return math.min(s.capacity or math.huge, part)
end

-- When the group has `missing` more places, ms from now: by its own rate and limits, and by its turns among the other
-- groups. line: how many of its jobs are in line; then delayed ones have to come first.
function grouped.retry_ms(g, shape, group, missing, line)
  local s = g:settings(group)
  if s.paused then
    if s.paused == math.huge then return free_places.UNKNOWN_MS end
    return math.max(1, math.ceil((s.paused - g.now) / 1000))
  end
  local b, own = g:bucket(group, s), 0
  if b then own = math.ceil((b.origin + bucket.nth_slot(b, missing, 1, 1, g.now - b.origin) - g.now) / 1000) end
  local limits = group_schedule.of(g, shape)
  if limits then own = math.max(own, math.ceil((limits(group, missing, 0) - g.now) / 1000)) end
  if missing > line then
    local due = group_later.due(g.base, group, missing - line)
    own = math.max(own, due and due - math.floor(g.now / 1000) or free_places.UNKNOWN_MS)
  end
  local turns = missing * math.max(1, redis.call('ZCARD', g:key('ready')))
  local depth = redis.call('LLEN', g.base .. 'wait') + redis.call('ZCARD', g.base .. 'prioritized')
  local queue = free_places.retry_ms(g.base, shape, g.now, math.min(turns, math.max(1, depth)))
  return math.max(1, own, queue)
end

-- As admission.cost_error, by the rate and burst of the group; third, the group. A rate of feedback refuses none: it ends.
function grouped.cost_error(g, group, cost)
  if cost <= 1 or not g.enforced then return nil end
  local s = g:settings(group)
  if not s.has_rate or cost <= s.burst then return nil end
  return { -3, { exact_text(cost), exact_text(s.burst), group } }
end

-- Nil if so many new jobs of the group have places, else the refusal, which is counted.
function grouped.refusal(g, shape, group, count)
  local limit = grouped.bound(g, shape, g:settings(group))
  if shape.mode == 'off' or limit == math.huge then return nil end
  local waiting, line = g:places(group, limit - count, capacity_due(shape, g.now))
  if waiting + count <= limit then return nil end
  if count > limit and shape.mode == 'enforce' then return { -4, { count, limit, group } } end
  if shape.mode ~= 'enforce' then
    redis.call('HINCRBY', g.base .. 'meta:meter', 'shadowRefused', count)
    return nil
  end
  refusals_note(g.base .. 'meta:meter', g.base .. 'events', g.now, count, waiting, limit)
  local paused = redis.call('HEXISTS', g.base .. 'meta', 'paused') == 1 or shape.paused_until > g.now
  local retry_ms = grouped.retry_ms(g, shape, group, waiting + count - limit, line)
  return { -8, { retry_ms, waiting, limit, paused and '1' or '0', count, group } }
end

-- Nil if a new job of that cost may come into its group, else the refusal.
function grouped.refusal_of_one(g, shape, group, cost)
  return grouped.cost_error(g, group, cost) or grouped.refusal(g, shape, group, 1)
end

-- The first refusal of the jobs of several groups. counts: group -> how many
function grouped.refusal_of_all(g, shape, counts)
  for group, count in pairs(counts) do
    local refusal = grouped.refusal(g, shape, group, count)
    if refusal then return refusal end
  end
end
