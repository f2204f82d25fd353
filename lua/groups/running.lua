local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'

-- The running jobs of each group (groups/queue-groups), as far as they are recorded, and whether as many run as may.
-- Adds these functions to the table of groups/queue-groups.
local function group_running(groups)
  -- Stores recorded running jobs.
  function groups.store_running(g)
    local held = g.base .. 'meta:groups:held'
    groups.in_parts(g.ended, function(...) redis.call('HDEL', held, ...) end)
    groups.in_parts(g.begun, function(...) redis.call('HSET', held, ...) end)
    g.ended, g.begun = {}, {}
  end

  -- Whether a recorded job still holds its place. If not, it gives it back.
  local function verify_held(g, group, id)
    if redis.call('EXISTS', g.base .. id .. ':lock') == 1 or redis.call('LPOS', g.base .. 'active', id) then return end
    if groups.is_strict(g, group) and groups.comes_again(g, id) then return end
    groups.unhold(g, group, id)
  end

  -- Ends of jobs that did not pass our scripts leave their places taken.
  function groups.verify_full(g)
    local first = groups.may_have(g, 'full') and redis.call('ZRANGE', groups.key(g, 'full'), 0, 0, 'WITHSCORES') or {}
    local group = first[1]
    g.none_full = not group
    if not group then groups.note_unused(g, 'full') end
    if not group or tonumber(first[2]) > g.now - groups.VERIFY_US then return end
    for _, id in ipairs(redis.call('SMEMBERS', g.base .. 'meta:group:held:' .. group)) do verify_held(g, group, id) end
    if g.counted then
      -- Some of all, at random: they take common places.
      local some = redis.call('HRANDFIELD', g.base .. 'meta:groups:held', groups.VERIFIED, 'WITHVALUES')
      for i = 1, #some, 2 do verify_held(g, some[i + 1], some[i]) end
    end
    if groups.is_full(g, group, groups.settings(g, group).concurrency) then
      redis.call('ZADD', groups.key(g, 'full'), as_text.us(g.now), group)
    else
      groups.release(g, group, 'full')
    end
  end

  -- From the first limit on running jobs on, the running jobs of all groups are recorded.
  function groups.track(g)
    for _, id in ipairs(redis.call('LRANGE', g.base .. 'active', 0, -1)) do
      local group = groups.of_job(g.base, id)
      if group then groups.hold(g, group, id) end
    end
    redis.call('HSET', g.base .. 'meta:groups', 'tracked', 1)
    g.tracked = true
  end

  -- In the mode `off`, neither starts nor ends are recorded.
  function groups.track_again(g)
    if not g.tracked then return end
    local held = redis.call('HGETALL', g.base .. 'meta:groups:held')
    for i = 1, #held, 2 do verify_held(g, held[i + 1], held[i]) end
    groups.track(g)
    groups.store_running(g)
  end

  -- Scripts that choose jobs write the hash of all running ones by groups.save.
  function groups.hold(g, group, id)
    local begun = g.begun
    local n = #begun
    begun[n + 1], begun[n + 2] = id, group
    local came = redis.call('SADD', g.base .. 'meta:group:held:' .. group, id)
    if g.running then g.running = g.running + came end
    if g.counted then redis.call('SADD', groups.key(g, 'running'), group) end
  end

  -- Returns whether a place besides the first one of the group is free again, in a queue that counts these.
  function groups.unhold(g, group, id)
    if g.together then
      g.ended[#g.ended + 1] = id
    else
      redis.call('HDEL', g.base .. 'meta:groups:held', id)
    end
    local held = g.base .. 'meta:group:held:' .. group
    local gone = redis.call('SREM', held, id)
    if not g.counted then return false end
    if g.running then g.running = g.running - gone end
    if redis.call('EXISTS', held) == 1 then return gone == 1 end
    redis.call('SREM', groups.key(g, 'running'), group)
    return false
  end

  -- From the first `keepFree` on, the groups with running jobs are recorded.
  function groups.count_running(g)
    groups.store_running(g)
    local running = groups.key(g, 'running')
    redis.call('DEL', running)
    for _, group in ipairs(redis.call('HVALS', g.base .. 'meta:groups:held')) do redis.call('SADD', running, group) end
    redis.call('HSET', g.base .. 'meta:groups', 'counted', 1)
    g.counted = true
  end

  -- How many jobs may run besides the first one of each group; nil if all may. The other places of the queue are kept
  -- for groups without running jobs.
  local function common_places(g)
    local kept = g.given.keepFree
    local all = kept and groups.queue_places(g)
    return all and math.max(0, all - kept)
  end

  -- Whether as many jobs of a group run as may, if it may run `most` (nil: any number): 'own', or 'common' if it lacks
  -- a place besides its first one. That is read once as many of all groups run.
  function groups.is_full(g, group, most)
    local common = common_places(g)
    if not (most or common) then return false end
    if not g.running then
      -- Jobs that have ended in this call no longer count.
      if common then groups.store_running(g) end
      g.running = redis.call('HLEN', g.base .. 'meta:groups:held') + #g.begun / 2
    end
    if g.running < math.min(most or math.huge, common or math.huge) then return false end
    local own = redis.call('SCARD', g.base .. 'meta:group:held:' .. group)
    if most and own >= most then return 'own' end
    if not common or own == 0 then return false end
    return g.running - redis.call('SCARD', groups.key(g, 'running')) >= common and 'common'
  end

  -- full: as groups.is_full returns it
  function groups.hold_full(g, group, tag, full)
    groups.hold_back(g, group, tag, 'full', as_text.us(g.now))
    if full == 'common' then redis.call('ZADD', groups.key(g, 'common'), as_text.us(tag), group) end
  end

  -- A place besides first ones is free: of the groups that lack one, the next in turn is ready.
  local function release_common(g)
    for _ = 1, groups.DUE do
      local group = redis.call('ZPOPMIN', groups.key(g, 'common'))[1]
      if not group then return false end
      if groups.release(g, group, 'full') then return true end
    end
    return false
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

  -- A job no longer runs: its group may have a place now, unless that is in strict order, and the job runs again; and
  -- others one of its keys. Returns whether a group or a lane may go.
  function groups.left(g, id)
    local freed = groups.give_places(g, id)
    if g.tracked == false then return freed end
    local group = g.group_of and g.group_of[id]
    if group == nil then group = redis.call('HGET', g.base .. 'meta:groups:held', id) end
    if not group then return freed end
    local ended, is_strict = call_state.ended[id], groups.is_strict(g, group)
    if is_strict and not ended then return freed end
    local has_freed = groups.unhold(g, group, id)
    local is_ready = groups.release(g, group, 'full')
    if has_freed then is_ready = release_common(g) or is_ready end
    if is_strict and ended ~= true then groups.hold_failed(g, group, id, ended) end
    return is_ready or freed
  end
end

return group_running
