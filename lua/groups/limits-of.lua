local limit_checks = use 'limits/checks'
local queue_limits = use 'limits/queue-limits'
local job_options = use 'shape/job-options'

-- The limits of a shape that hold for each group by itself (by = { 'group' }). A group has a state of each, as one key of a
-- limit has in limits/state, which expires by itself:
--   meta:group:limit:<name>:<algorithm>:<group>
-- groups/queue-groups asks them when it chooses a job and charges them when that job leaves, if g.limits is set. A job that
-- goes back is charged again, as under the limits of the queue. Jobs without a group are one group, named ''. Nil for a
-- queue without such limits.
local function group_limits_of(base, shape, now)
  if not shape.keyed_limits then return nil end
  -- revision: another one where these limits are others
  local limits, known = { revision = redis.sha1hex(shape.keyed_limits) }, cjson.decode(shape.keyed_limits)

  -- The limits, each with the state of the group, as in limits/queue-limits.
  function limits.open(group)
    local parts = {}
    for i, l in ipairs(known) do
      local control = base .. 'meta:group:limit:' .. l.name
      -- Only a limiter of the same name, which could not know the groups, would set its switch.
      if not l.control then limit_checks.prepare(l, control, now, true, false) end
      local key = control .. string.match(l.state, '^:%a+:') .. group
      parts[i] = { l = l, group = group, offset = 0, blocked = 0, s = l.verbs.open(key, l, now) }
    end
    return parts
  end

  -- The earliest slot of a job, µs, 0 for now; second, the name of the limit that it waits for.
  function limits.slot(parts, cost, costs)
    local wait, _, name = queue_limits.wait(parts, cost, costs)
    return wait > 0 and now + math.ceil(wait) or 0, name
  end

  -- Charges the job last passed to limits.slot, which has left. part.taken: what it took
  function limits.charge(parts, slot)
    queue_limits.charge(parts, slot - now, '')
    queue_limits.save(parts, base, false)
    for _, part in ipairs(parts) do part.taken = part.cost end
  end

  -- The name of the limit that holds the next job of a group longer than its rate does, nil if none does.
  function limits.cause(g, group)
    local id = g.enforced and g:head(group)
    if not id then return nil end
    local cost, _, costs = job_options.cost_of_job(base .. id)
    local slot, name = limits.slot(limits.open(group), cost, costs)
    local b = group ~= '' and g:bucket(group, g:settings(group))
    return slot > (b and g:slot(b, cost) or 0) and name or nil
  end

  return limits
end

return group_limits_of
