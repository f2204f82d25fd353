--- @include "hooks"
--- @include "limit-place"
--- @include "next-delayed"

-- What remains to be done after a finish that does not fetch the next job.
local without_fetch = {}

-- The `redis` for BullMQ's script: otherwise, without a fetch, it would report 'drained' although delayed jobs follow.
-- BullMQ's own workers always fetch.
function without_fetch.quiet(base)
  local call, handlers = redis.call, {}
  function handlers.XADD(command, key, id, field, event, ...)
    if event == 'drained' and redis.call('ZCARD', base .. 'delayed') > 0 then return false end
    return call(command, key, id, field, event, ...)
  end
  return hooked_redis(redis, handlers)
end

-- With a limit on running jobs, jobs that ended wake a worker that waits for a place. ended: how many
function without_fetch.frees_place(base, ended)
  queue_limits_freed(base, redis.call('HGET', base .. 'meta:shape', 'limits'))
  local places = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil)
  if not places then return end
  if redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') > 0 then
    redis.call('ZADD', base .. 'marker', 0, '0')
    return
  end
  -- While every place is taken, BullMQ's script does not report when the next delayed job is due: workers that asked
  -- meanwhile do not know. It matters again from here on.
  local running = redis.call('LLEN', base .. 'active')
  if running < places and running + ended >= places then next_delayed_mark(base) end
end
