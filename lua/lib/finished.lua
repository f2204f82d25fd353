--- @include "hooks"
--- @include "limit-place"
--- @include "next-delayed"

-- The end of a job that is not kept is remembered in a key of its own.
local function finished_key(base, id)
  return base .. 'meta:finished:' .. id
end

local function finished_remember(base, id, timestamp, memo_ms)
  redis.call('SET', finished_key(base, id), timestamp, 'PX', memo_ms)
end

-- Whether this end of the job is recorded already: the script ran, its reply was lost, the client resent it. target:
-- the set of finished jobs
local function finished_before(base, target, id, timestamp)
  if redis.call('GET', finished_key(base, id)) == timestamp then return true end
  local finished_on = redis.call('HGET', base .. id, 'finishedOn')
  return finished_on == timestamp and redis.call('ZSCORE', target, id) == timestamp
end

-- Returns BullMQ's code, corrected for a resent call, and whether the call was resent.
local function finished_code(reply, base, target, id, timestamp)
  local code = type(reply) == 'table' and 0 or reply
  if code < 0 and finished_before(base, target, id, timestamp) then return 0, true end
  return code, false
end

-- For an end that fetches nothing: BullMQ's script would report 'drained' although delayed jobs follow, which it does
-- not when it looks for the next job, as its own workers always do.
local function finished_quietly(base)
  local call, handlers = redis.call, {}
  function handlers.XADD(command, key, id, field, event, ...)
    if event == 'drained' and redis.call('ZCARD', base .. 'delayed') > 0 then return false end
    return call(command, key, id, field, event, ...)
  end
  return hooked_redis(redis, handlers)
end

-- With a limit on running jobs, jobs that ended without fetching wake a worker that waits for a place. ended: how many
local function finished_frees_place(base, ended)
  queue_limits_freed(base, redis.call('HGET', base .. 'meta:shape', 'limits'))
  local places = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil)
  if not places then return end
  if redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') > 0 then
    redis.call('ZADD', base .. 'marker', 0, '0')
    return
  end
  -- While every place is taken, BullMQ's script does not report when the next delayed job is due: workers that asked
  -- since then have lost the time. It matters again from here on.
  local running = redis.call('LLEN', base .. 'active')
  if running < places and running + ended >= places then next_delayed_mark(base) end
end
