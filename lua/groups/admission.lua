local occupancy = use 'admission/occupancy'
local refusals = use 'admission/refusals'
local group_retry = use 'groups/retry'
local group_share = use 'groups/share'
local as_text = use 'redis/as-text'

-- What the admission of jobs of groups adds to admission/admission: their queue must have groups, and each group has a
-- bound.
--   status  -7 the queue has no groups, -8 a group is full
--   detail  of -8: that of a full queue, with the capacity and the number of jobs of the group, then the group

local group_admission = {}

-- As admission.cost_error, by the rate and burst of the job's group, if it has one; third, the group. A rate of feedback
-- refuses none: it ends.
function group_admission.cost_error(g, job)
  local cost, group = job.cost, job.group and job.group[1]
  if not (g and group) or cost <= 1 or not g.enforced then return nil end
  local s = g:settings(group)
  if not s.has_rate or cost <= s.burst then return nil end
  return { -3, { as_text.exact(cost), as_text.exact(s.burst), group } }
end

local function refuse(g, shape, group, asked)
  local count, held, limit = asked.count, asked.held, asked.limit
  refusals.note(g.base, g.now, count, held, limit)
  local paused = redis.call('HEXISTS', g.base .. 'meta', 'paused') == 1 or shape.paused_until > g.now
  return { -8, { group_retry.retry_ms(g, shape, group, asked), held, limit, paused and '1' or '0', count, group } }
end

-- Nil if so many new jobs of the group have places, else the refusal, which is counted. Second, how many of them have to
-- replace other jobs of the group; third, a function that refuses them. While the queue itself lacks places, only a capacity
-- of its own refuses: admission/admission does for the queue.
local function refusal_of_group(g, shape, group, count, call)
  if shape.mode == 'off' then return nil end
  local bound = group_share.bound(g, call, group, count)
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
      return nil, count - math.max(0, limit - held), function() return refuse(g, shape, group, asked) end
    end
    if call.depth + call.total > call.capacity then return nil end
  end
  if shape.mode ~= 'enforce' then
    redis.call('HINCRBY', g.base .. 'meta:meter', 'shadowRefused', count)
    return nil
  end
  return refuse(g, shape, group, asked)
end

-- The first refusal of new jobs by the bounds of their groups. jobs, drops: as in admission.refusal, where drops is `choose`.
-- Second, the `swaps` of admission/admission.
function group_admission.refusal(shape, jobs, drops)
  local g, counts, names, swaps = jobs.groups, {}, {}, nil
  for _, job in ipairs(g and jobs or {}) do
    local group = job.group and job.group[1]
    if group and not counts[group] then names[#names + 1] = group end
    if group then counts[group] = (counts[group] or 0) + 1 end
  end
  if not names[1] then return nil end
  local call = group_share.call(g, shape, #jobs, drops)
  if call.drops then table.sort(names) end
  for _, group in ipairs(names) do
    local refusal, missing, refuses = refusal_of_group(g, shape, group, counts[group], call)
    if refusal then return refusal end
    if missing then
      swaps = swaps or { of = {}, refuse = refuses }
      swaps.of[group] = missing
    end
    call.kept = call.kept + counts[group] - (missing or 0)
  end
  return nil, swaps
end

return group_admission
