local occupancy = use 'admission/occupancy'
local refusals = use 'admission/refusals'
local group_places = use 'groups/places'
local queue_groups = use 'groups/queue-groups'
local group_retry = use 'groups/retry'
local as_text = use 'redis/as-text'

-- What the admission of jobs of groups adds to admission/admission: their queue must have groups, and each group has a
-- bound.
--   status  -7 the queue has no groups, -8 a group is full
--   detail  of -8: that of a full queue, with the capacity and the number of jobs of the group, then the group

local group_admission = {}

-- The groups of a queue, for the jobs of one call; nil if it has none.
function group_admission.open(base, shape, now)
  if not shape or not shape.groups then return nil end
  return queue_groups.open(base, shape, now)
end

-- The group that the text of a job (JSON, '' if it has none) names: {id, priority}.
function group_admission.read(text)
  return text ~= '' and cjson.decode(text) or nil
end

-- As admission.cost_error, by the rate and burst of the group; third, the group. A rate of feedback refuses none: it ends.
function group_admission.cost_error(g, group, cost)
  if cost <= 1 or not g.enforced then return nil end
  local s = g:settings(group)
  if not s.has_rate or cost <= s.burst then return nil end
  return { -3, { as_text.exact(cost), as_text.exact(s.burst), group } }
end

-- Nil if so many new jobs of the group have places, else the refusal, which is counted. Second, how many of them have to
-- replace other jobs of the group; third, a function that refuses them. While the queue itself lacks places, only a capacity
-- of its own refuses: admission/admission does for the queue.
function group_admission.refusal(g, shape, group, count, call)
  if shape.mode == 'off' then return nil end
  local bound = group_places.bound(g, call, group, count)
  if bound.own == math.huge and (not call.of_free or call.is_sure) then return nil end
  local held, line = g:places(group, function(n) return n + count <= bound.most(n) end, occupancy.due(shape, g.now))
  local limit = bound.most(held)
  if held + count <= limit then return nil end
  if count > bound.largest and bound.largest > 0 and shape.mode == 'enforce' then
    return { -4, { count, bound.largest, group } }
  end
  local asked = { count = count, held = held, line = line, limit = limit, bound = bound }
  if held + count <= bound.own then
    if call.drops then
      return nil, count - math.max(0, limit - held), function() return group_admission.refuse(g, shape, group, asked) end
    end
    if call.depth + call.total > call.capacity then return nil end
  end
  if shape.mode ~= 'enforce' then
    redis.call('HINCRBY', g.base .. 'meta:meter', 'shadowRefused', count)
    return nil
  end
  return group_admission.refuse(g, shape, group, asked)
end

function group_admission.refuse(g, shape, group, asked)
  local count, held, limit = asked.count, asked.held, asked.limit
  refusals.note(g.base .. 'meta:meter', g.base .. 'events', g.now, count, held, limit)
  local paused = redis.call('HEXISTS', g.base .. 'meta', 'paused') == 1 or shape.paused_until > g.now
  return { -8, { group_retry.retry_ms(g, shape, group, asked), held, limit, paused and '1' or '0', count, group } }
end

-- Nil if a new job of that cost may come into its group, else the refusal. Second, as of group_admission.refusal_of_all.
function group_admission.refusal_of_one(g, shape, group, cost, drops)
  local refused = group_admission.cost_error(g, group, cost)
  if refused then return refused end
  return group_admission.refusal_of_all(g, shape, { [group] = 1 }, 1, drops)
end

-- The first refusal of the jobs of several groups. counts: group -> how many; total, drops: as in group_places.call. Second,
-- the `swaps` of admission/admission.
function group_admission.refusal_of_all(g, shape, counts, total, drops)
  local call, swaps, names = group_places.call(g, shape, total, drops), nil, {}
  for group in pairs(counts) do names[#names + 1] = group end
  if call.drops then table.sort(names) end
  for _, group in ipairs(names) do
    local refusal, missing, refuse = group_admission.refusal(g, shape, group, counts[group], call)
    if refusal then return refusal end
    if missing then
      swaps = swaps or { of = {}, refuse = refuse }
      swaps.of[group] = missing
    end
    call.kept = call.kept + counts[group] - (missing or 0)
  end
  return nil, swaps
end

return group_admission
