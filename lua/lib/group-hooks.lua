--- @include "clock"
--- @include "groups"
--- @include "group-wake"
--- @include "hooks"
--- @include "queued-at"

-- The `redis` for scripts of BullMQ that put jobs into a wait list, or take them from the running ones: in a queue with
-- groups, the jobs are sorted in, and their places become free; where jobs age, since when they wait is recorded. Other
-- queues pay one command.
-- known: base -> {whether the queue has groups, whether its jobs age}, of queues whose shape was read
local function groups_redis(redis, known)
  local call = redis.call
  known = known or {}
  local function shape_of(base)
    if not known[base] then known[base] = call('HMGET', base .. 'meta:shape', 'groups', 'priorityAgeingMs') end
    return known[base][1], known[base][2]
  end
  local function run(base, command, ...)
    local grouped, ages = shape_of(base)
    local g, inner = grouped and groups_library().bare(base), redis
    if g then inner = hooked_redis(redis, g:storing_handlers(redis)) end
    if ages then inner = queued_at_redis(inner, base, redis_now()) end
    local reply = inner.call(command, ...)
    if not g then return reply end
    g:save()
    -- A job without a group is ready once a worker looks.
    if g.awaited or (g.plain_known == false and redis.call('EXISTS', g:key('ready')) == 0) then group_wake(base) end
    return reply
  end
  local function of(lists)
    return function(command, key, ...)
      local base, list = string.match(key, '^(.*:)([^:]+)$')
      if not lists[list] then return call(command, key, ...) end
      return run(base, command, key, ...)
    end
  end
  local push, later = of({ wait = true }), { delayed = true, ['waiting-children'] = true }
  return hooked_redis(redis, {
    LPUSH = push, RPUSH = push, LREM = of({ active = true, wait = true }),
    ZREM = of({ prioritized = true, delayed = true, ['waiting-children'] = true }),
    -- For a queue that is not known yet, the command would be one more: lib/ageing does without.
    ZADD = function(command, key, ...)
      local base, list = string.match(key, '^(.*:)([^:]+)$')
      if not later[list] and not (list == 'prioritized' and known[base]) then return call(command, key, ...) end
      return run(base, command, key, ...)
    end,
  })
end
