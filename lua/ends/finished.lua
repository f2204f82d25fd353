local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- Remembers the ends of runs that the job does not show, because it is removed or runs again: one hash for each tenth
-- of a second (id -> when the run ended, ms). A key for each end would cost more than the rest of the end, mostly at
-- its expiry. A sorted set lists these hashes, named by workers' clocks, by their time of expiry, ms.

local finished = {}

-- The least time that they are remembered for admission/sent-again: 30 s, and its allowance for clocks.
finished.LEAST_MS = 31000
local function finished_key(base, timestamp)
  return base .. 'meta:ended:' .. string.sub(timestamp, 1, -3)
end

function finished.remember(base, id, timestamp, memo_ms)
  local key = finished_key(base, timestamp)
  redis.call('HSET', key, id, timestamp)
  -- This call has set its lifetime.
  if key == call_state.finished then return end
  call_state.finished = key
  -- Workers use different lifetimes. The longest applies to all ends of the same tenth of a second.
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

-- Returns BullMQ's code, corrected for a resent call, and whether the call was resent: the script ran before and has
-- recorded this end, but its reply was lost. target: the set of finished jobs, for the end of a job that may be kept
function finished.code(reply, base, target, id, timestamp)
  if type(reply) == 'table' or reply >= 0 then return type(reply) == 'table' and 0 or reply, false end
  local again = finished.is_remembered(base, id, timestamp)
  if not again and target then
    local finished_on = redis.call('HGET', base .. id, 'finishedOn')
    again = finished_on == timestamp and redis.call('ZSCORE', target, id) == timestamp
  end
  return again and 0 or reply, again
end

-- BullMQ's retryJob puts a job back once. Resent after a lost reply, it finds no lock, which is not an error here.
-- Returns BullMQ's code, corrected. ended: the timestamp of the call
function finished.retried(base, id, ended, reply)
  local code = finished.code(reply, base, nil, id, ended)
  if reply == 0 then finished.remember(base, id, ended, 0) end
  return code
end

return finished
