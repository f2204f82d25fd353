local wake = use 'gate/wake'
local queue_limits = use 'limits/queue-limits'
local hooked_redis = use 'redis/hooked-redis'

-- The remaining work after an end that fetches no job.
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

-- With a limit on running jobs, ended jobs wake a worker that waits for a place. ended: how many
function without_fetch.frees_place(base, ended)
  wake.touched()
  queue_limits.freed(base, redis.call('HGET', base .. 'meta:shape', 'limits'))
  local places = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil)
  if not places then return end
  if wake.marked(base) then return end
  local running = redis.call('LLEN', base .. 'active')
  if running < places and running + ended >= places then wake.when_due(base) end
end

return without_fetch
