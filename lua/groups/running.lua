local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'

-- The running jobs of each group (groups/queue-groups), as far as they are recorded, and whether as many run as may. Adds
-- these verbs to the table of groups/queue-groups.
local function group_running(groups)
  -- Ends of jobs that did not pass our scripts leave their places taken.
  function groups.verify_full(g)
    local first = groups.may_have(g, 'full') and redis.call('ZRANGE', groups.key(g, 'full'), 0, 0, 'WITHSCORES') or {}
    local group = first[1]
    g.none_full = not group
    if not group then groups.note_unused(g, 'full') end
    if not group or tonumber(first[2]) > g.now - groups.VERIFY_US then return end
    local s = groups.settings(g, group)
    for _, id in ipairs(redis.call('SMEMBERS', g.base .. 'meta:group:held:' .. group)) do
      local runs = redis.call('EXISTS', g.base .. id .. ':lock') == 1 or redis.call('LPOS', g.base .. 'active', id)
      if not runs and not (s.is_strict and groups.comes_again(g, id)) then groups.unhold(g, group, id) end
    end
    if not s.concurrency or redis.call('SCARD', g.base .. 'meta:group:held:' .. group) < s.concurrency then
      groups.release(g, group, 'full')
    else
      redis.call('ZADD', groups.key(g, 'full'), as_text.us(g.now), group)
    end
  end

  -- From the first limit on running jobs on, those of all groups are recorded.
  function groups.track(g)
    for _, id in ipairs(redis.call('LRANGE', g.base .. 'active', 0, -1)) do
      local group = groups.of_job(g.base, id)
      if group then groups.hold(g, group, id) end
    end
    redis.call('HSET', g.base .. 'meta:groups', 'tracked', 1)
    g.tracked = true
  end

  -- Scripts that choose jobs write the hash of all running ones by groups.save.
  function groups.hold(g, group, id)
    local begun = g.begun
    local n = #begun
    begun[n + 1], begun[n + 2] = id, group
    if g.running then g.running = g.running + 1 end
    redis.call('SADD', g.base .. 'meta:group:held:' .. group, id)
  end

  function groups.unhold(g, group, id)
    if g.together then
      g.ended[#g.ended + 1] = id
    else
      redis.call('HDEL', g.base .. 'meta:groups:held', id)
    end
    redis.call('SREM', g.base .. 'meta:group:held:' .. group, id)
  end

  -- Whether as many jobs of a group run as may. That is looked up once as many of all groups run.
  function groups.is_full(g, group, most)
    g.running = g.running or redis.call('HLEN', g.base .. 'meta:groups:held') + #g.begun / 2
    return g.running >= most and redis.call('SCARD', g.base .. 'meta:group:held:' .. group) >= most
  end

  -- Reads the groups of jobs that end in this call together.
  function groups.expect_ends(g, ids)
    groups.expect_places(g, ids)
    if not g.tracked then return end
    g.group_of = {}
    local held = g.base .. 'meta:groups:held'
    local function running(...) return redis.call('HMGET', held, ...) end
    groups.read_each(ids, running, function(id, group) g.group_of[id] = group end)
  end

  -- A job no longer runs: its group may have a place now, unless that is in strict order, and the job comes again; and others
  -- one of its keys. Returns whether a group or a lane may go.
  function groups.left(g, id)
    local freed = groups.give_places(g, id)
    if g.tracked == false then return freed end
    local group = g.group_of and g.group_of[id]
    if group == nil then group = redis.call('HGET', g.base .. 'meta:groups:held', id) end
    if not group then return freed end
    local ended, is_strict = call_state.ended[id], groups.is_strict(g, group)
    if is_strict and not ended then return freed end
    groups.unhold(g, group, id)
    local is_ready = groups.release(g, group, 'full')
    if is_strict and ended ~= true then groups.hold_failed(g, group, id, ended) end
    return is_ready or freed
  end
end

return group_running
