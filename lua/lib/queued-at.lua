--- @include "text"
--- @include "hooks"

-- The `redis` for BullMQ's scripts in a queue whose jobs age (lib/ageing): records since when they wait. A job that goes
-- before the others of its priority (a stalled or rate-limited one, one of a flow whose children are done) has waited
-- before.
local function queued_at_redis(redis, base, now)
  local call, wait, prioritized, at = redis.call, base .. 'wait', base .. 'prioritized', us_text(now)
  local function push(note)
    return function(command, key, ...)
      if key == wait then
        for _, id in ipairs({ ... }) do call(note, base .. id, 'queuedAt', at) end
      end
      return call(command, key, ...)
    end
  end
  return hooked_redis(redis, {
    LPUSH = push('HSET'),
    RPUSH = push('HSETNX'),
    ZADD = function(command, key, score, id, ...)
      -- BullMQ puts a job before all others of its priority with the number 0.
      local note = tonumber(score) and tonumber(score) % 4294967296 > 0 and 'HSET' or 'HSETNX'
      if key == prioritized then call(note, base .. id, 'queuedAt', at) end
      return call(command, key, score, id, ...)
    end,
  })
end
