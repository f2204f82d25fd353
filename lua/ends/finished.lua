local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- The ends of runs whose jobs do not show them, since they are not kept or come again, are remembered in a hash for each
-- tenth of a second (id -> when the run ended, ms): a key for each would cost more than the rest of that, most of it when
-- the key expires. A sorted set has these hashes, which are named by the clocks of workers, by the time at which they
-- expire, ms.

local finished = {}

-- The least time that they are remembered for admission/sent-again: 30 s, and what it allows for clocks.
finished.LEAST_MS = 31000
local function finished_key(base, timestamp)
  return base .. 'meta:ended:' .. string.sub(timestamp, 1, -3)
end

function finished.remember(base, id, timestamp, memo_ms)
  local key = finished_key(base, timestamp)
  redis.call('HSET', key, id, timestamp)
  -- This call has looked at its lifetime.
  if key == call_state.finished then return end
  call_state.finished = key
  -- Workers differ in it. The longest applies, and the ends of the same tenth of a second need no other one.
  local least_ms, hashes = math.max(memo_ms, finished.LEAST_MS), base .. 'meta:ended'
  if redis.call('PTTL', key) >= least_ms then return end
  local now_ms, lasts_ms = math.floor(redis_now() / 1000), least_ms + 100
  redis.call('PEXPIRE', key, lasts_ms)
  redis.call('ZADD', hashes, now_ms + lasts_ms, key)
  redis.call('ZREMRANGEBYSCORE', hashes, '-inf', now_ms)
  if redis.call('PTTL', hashes) < lasts_ms then redis.call('PEXPIRE', hashes, lasts_ms) end
end

function finished.is_remembered(base, id, timestamp)
  return redis.call('HGET', finished_key(base, timestamp), id) == timestamp
end

-- Returns BullMQ's code, corrected for a resent call, and whether it was resent: this end of a run is recorded already, since
-- the script ran and its reply was lost. target: the set of finished jobs, for the end of one that may be kept
function finished.code(reply, base, target, id, timestamp)
  if type(reply) == 'table' or reply >= 0 then return type(reply) == 'table' and 0 or reply, false end
  local again = finished.is_remembered(base, id, timestamp)
  if not again and target then
    local finished_on = redis.call('HGET', base .. id, 'finishedOn')
    again = finished_on == timestamp and redis.call('ZSCORE', target, id) == timestamp
  end
  return again and 0 or reply, again
end

-- BullMQ's retryJob puts a job back once: sent again, since its reply was lost, it finds no lock, which is not an error
-- then. Returns BullMQ's code, corrected. ended: the timestamp of the call
function finished.retried(base, id, ended, reply)
  local code = finished.code(reply, base, nil, id, ended)
  if reply == 0 then finished.remember(base, id, ended, 0) end
  return code
end

return finished
