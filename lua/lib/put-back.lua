-- Running jobs that go back to the head of their queue as if they had never started.

-- score: of a prioritized job, or ''. False where the job is not the caller's any more: its lock token tells.
local function put_back(base, id, token, score)
  local job_key = base .. id
  if redis.call('GET', job_key .. ':lock') ~= token then return false end
  if redis.call('LREM', base .. 'active', -1, id) == 0 then return false end
  redis.call('DEL', job_key .. ':lock')
  redis.call('SREM', base .. 'stalled', id)
  redis.call('HINCRBY', job_key, 'ats', -1)
  redis.call('HDEL', job_key, 'processedOn', 'departure', 'pb')
  if score ~= '' then
    redis.call('ZADD', base .. 'prioritized', score, id)
  else
    redis.call('RPUSH', base .. 'wait', id)
  end
  redis.call('XADD', base .. 'events', '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
  return true
end

-- BullMQ's marker, for whoever waits for a job.
local function put_back_mark(base)
  if redis.call('HEXISTS', base .. 'meta', 'paused') == 1 then return end
  if redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') > 0 then
    redis.call('ZADD', base .. 'marker', 0, '0')
  end
end
