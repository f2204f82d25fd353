-- Refusals are reported to QueueEvents in at most one event a second.

local refusals = {}

local SECOND_US = 1000000

-- How many refusals to report now; 0 within a second of the last event. refused, at: fields of the meter's hash
function refusals.due_of(refused, at, now)
  at = tonumber(at) or 0
  if now - at < SECOND_US and now >= at then return 0 end
  return tonumber(refused) or 0
end

function refusals.due(base, now)
  local f = redis.call('HMGET', base .. 'meta:meter', 'refused', 'refusedAt')
  return refusals.due_of(f[1], f[2], now)
end

function refusals.tell(base, now, count, depth, capacity)
  redis.call('HSET', base .. 'meta:meter', 'refused', 0, 'refusedAt', string.format('%.0f', now))
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'refused', 'count', count, 'depth', depth,
    'capacity', capacity or '')
end

-- Number of refused jobs: {terms} each, and `count` if there are more.
function refusals.of(jobs)
  local count = jobs.count or #jobs
  for _, job in ipairs(jobs) do
    if job.terms and job.terms.elsewhere then count = count - 1 end
  end
  return count
end

function refusals.note(base, now, jobs, depth, capacity)
  if jobs == 0 then return end
  local meter_key = base .. 'meta:meter'
  redis.call('HINCRBY', meter_key, 'refused', jobs)
  redis.call('HINCRBY', meter_key, 'refusedTotal', jobs)
  local count = refusals.due(base, now)
  if count > 0 then refusals.tell(base, now, count, depth, capacity) end
end

return refusals
