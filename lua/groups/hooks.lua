local queued_at_redis = use 'gate/queued-at-redis'
local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local hooked_redis = use 'redis/hooked-redis'
local redis_now = use 'redis/redis-now'

local group_hooks = {}

-- Stores what has changed of groups, and wakes a worker if another job may go now.
function group_hooks.store(g)
  g:save()
  if g.awaited or g.fronts then wake.head_changed(g.base, g) end
end

-- The `redis` for scripts of BullMQ that put jobs where they wait, take them from there or from the running ones, or
-- delete them: in a queue with groups, the jobs enter and leave their lines, and their places become free; where jobs age,
-- since when they wait is recorded. Second, a function for the end of the script, which stores what has changed, and wakes
-- a worker where the next job is another one. Other queues pay one command.
-- known: base -> {whether the queue has groups, whether its jobs age, its groups if they are opened: then the caller
-- stores them}, of queues whose shape was read
function group_hooks.redis(redis, known)
  local call, opened = redis.call, {}
  known = known or {}
  -- What the commands of a queue go to.
  local function target_of(base)
    local of = known[base] or call('HMGET', base .. 'meta:shape', 'groups', 'priorityAgeingMs')
    known[base] = of
    if of.target then return of.target end
    local g, target = of[3], redis
    if of[1] and not g then
      g = queue_groups.bare(base)
      opened[#opened + 1] = g
    end
    if g then target = hooked_redis(redis, g:handle_deletions({}, redis)) end
    if of[2] then target = queued_at_redis(target, base, redis_now()) end
    of.target = target
    return target
  end
  local function of(lists)
    return function(command, key, ...)
      local base, list = string.match(key, '^(.*:)([^:]+)$')
      if list ~= 'active' and list ~= 'waiting-children' then wake.note(base) end
      if not lists[list] then return call(command, key, ...) end
      return target_of(base).call(command, key, ...)
    end
  end
  local push, later = of({ wait = true }), { delayed = true, ['waiting-children'] = true }
  local hooked = hooked_redis(redis, {
    LPUSH = push, RPUSH = push, LREM = of({ active = true, wait = true }),
    ZREM = of({ prioritized = true, delayed = true, ['waiting-children'] = true }),
    -- For a queue that is not known yet, the command would be one more: gate/ageing-open does without.
    ZADD = function(command, key, ...)
      local base, list = string.match(key, '^(.*:)([^:]+)$')
      if list == 'prioritized' or list == 'delayed' then wake.note(base) end
      if not later[list] and not (list == 'prioritized' and known[base]) then return call(command, key, ...) end
      return target_of(base).call(command, key, ...)
    end,
    -- The ids of iterations of schedulers have colons.
    DEL = function(command, key, part, ...)
      if not part then return call(command, key) end
      return target_of(string.match(key, '^(.*:)repeat:.+:%d+$') or string.match(key, '^(.*:)')).call(command, key, part, ...)
    end,
  })
  return hooked, function()
    for _, g in ipairs(opened) do group_hooks.store(g) end
    wake.touched()
  end
end

return group_hooks
