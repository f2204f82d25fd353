local group_settings = use 'groups/settings'

-- Groups in strict order: their jobs run one at a time, and none starts before the one that started last has finally
-- ended. Such a job keeps its place among the running ones of its group (groups/running) while it is delayed for a
-- retry, waits for its children or is stalled, and when it comes again it goes before all others (FIRST_BAND). So do
-- jobs that it waits for. The scripts that end a job finally note that in redis/call-state. A failed job pauses its
-- group with `onFailed: 'hold'`, until it is brought back, or the group is resumed. Adds these functions to the table
-- of groups/queue-groups. g.strict: whether a group of this queue may be one of these; then g is never bare.
local function group_strict(groups)
  -- A job waits for its children, and these for theirs, up to this many generations.
  local GENERATIONS = 8

  -- The scores of jobs that go before all others of their group.
  groups.FIRST_BAND = -groups.BAND

  function groups.is_strict(g, group)
    return g.strict and group ~= '' and groups.settings(g, group).is_strict
  end

  -- How many of the jobs that hold the place of a group are the job itself, or wait for it.
  local function places_of(g, group, id)
    local held, count = g.base .. 'meta:group:held:' .. group, 0
    for _ = 1, GENERATIONS do
      count = count + redis.call('SISMEMBER', held, id)
      local parent = redis.call('HGET', g.base .. id, 'parentKey')
      if not parent or string.sub(parent, 1, #g.base) ~= g.base then break end
      id = string.sub(parent, #g.base + 1)
    end
    return count
  end

  -- Whether a job of a full group may start: all jobs that hold the group are this job, or wait for it.
  function groups.goes_on(g, group, id)
    local count = places_of(g, group, id)
    return count > 0 and count == redis.call('SCARD', g.base .. 'meta:group:held:' .. group)
  end

  -- Whether a job that does not run has not ended, so that it will run again.
  function groups.comes_again(g, id)
    local f = redis.call('HMGET', g.base .. id, 'timestamp', 'finishedOn')
    return f[1] and not f[2]
  end

  local function paused_by(id)
    return 'job ' .. id
  end

  -- A job of such a group failed finally.
  function groups.hold_failed(g, group, id, reason)
    local s = groups.settings(g, group)
    if s.on_failed ~= 'hold' or s.paused then return end
    group_settings.change(g, group, { paused = true }, paused_by(id), 'failed permanently: ' .. reason)
  end

  -- A failed job that holds its group comes again: it goes first, and the group continues.
  local function comes_back(g, group, id)
    if not groups.settings(g, group).paused then return false end
    local paused = group_settings.stored(g, group).fields.paused
    if not paused or paused.by ~= paused_by(id) then return false end
    group_settings.change(g, group, { paused = { clear = true } }, paused.by, 'comes again')
    groups.hold(g, group, id)
    groups.release(g, group, 'paused')
    return true
  end

  -- The priority of a job that comes into the line of its group, and whether it goes before the others of that priority.
  function groups.strict_place(g, group, id, priority, first)
    if not groups.is_strict(g, group) then return priority, first end
    if not comes_back(g, group, id) and places_of(g, group, id) == 0 then return priority, first end
    groups.release(g, group, 'full')
    return -1, redis.call('SISMEMBER', g.base .. 'meta:group:held:' .. group, id) == 1
  end
end

return group_strict
