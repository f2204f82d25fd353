-- Whether this very end of the job is recorded already: the script ran, its reply was lost, the client sent it again.
local function finished_before(job_key, finished_key, memory_key, id, timestamp)
  if redis.call('GET', memory_key) == timestamp then return true end
  local finished_on = redis.call('HGET', job_key, 'finishedOn')
  return finished_on == timestamp and redis.call('ZSCORE', finished_key, id) == timestamp
end

-- With a limit on running jobs, one that ended without fetching wakes a worker that waits for the place.
local function finished_frees_place(base)
  if not redis.call('HGET', base .. 'meta', 'concurrency') then return end
  if redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') > 0 then
    redis.call('ZADD', base .. 'marker', 0, '0')
  end
end
