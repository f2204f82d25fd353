local as_text = use 'redis/as-text'
local hooked_redis = use 'redis/hooked-redis'

-- The `redis` for BullMQ's scripts in a queue whose jobs age (gate/ageing-open): records since when they wait. A job
-- that goes before the others of its priority (a stalled or rate-limited one, one of a flow whose children are done)
-- has waited before. on_added: called for each added job, or nil
local function queued_at_redis(redis, base, now, on_added)
  local call, wait, prioritized, at = redis.call, base .. 'wait', base .. 'prioritized', as_text.us(now)
  local function came(id, first)
    if on_added then on_added() end
    if first then return call('HSETNX', base .. id, 'queuedAt', at) end
    call('HSET', base .. id, 'queuedAt', at)
  end
  local function push(first)
    return function(command, key, ...)
      if key == wait then
        for _, id in ipairs({ ... }) do came(id, first) end
      end
      return call(command, key, ...)
    end
  end
  return hooked_redis(redis, {
    LPUSH = push(false),
    RPUSH = push(true),
    ZADD = function(command, key, score, id, ...)
      -- BullMQ puts a job before all others of its priority with the number 0.
      if key == prioritized then came(id, score % 4294967296 == 0) end
      return call(command, key, score, id, ...)
    end,
  })
end

return queued_at_redis
