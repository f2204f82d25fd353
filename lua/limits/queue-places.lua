local wake = use 'gate/wake'
local queue_limit_control = use 'limits/queue-limit-control'

-- What waits for a place under concurrency limits.

local queue_places = {}

function queue_places.waiting(control)
  return control .. ':queues'
end

-- Wakes everything that waits for a shared limit: a worker of each other queue, and programs in limiter.wait.
function queue_places.call_others(control, base)
  redis.call('PUBLISH', control .. ':wake', '')
  for _, other in ipairs(redis.call('SMEMBERS', queue_places.waiting(control))) do
    redis.call('SREM', queue_places.waiting(control), other)
    if other ~= base then wake.sleeper(other) end
  end
end

function queue_places.are_limited(limits)
  return limits and string.find(limits, '"algorithm":"concurrency"', 1, true)
end

-- A job has ended, and its queue does not need its place. limits: JSON
function queue_places.free_others(base, limits)
  if not queue_places.are_limited(limits) then return end
  for _, l in ipairs(cjson.decode(limits)) do
    if l.shared and l.algorithm == 'concurrency' then queue_places.call_others(queue_limit_control(l, base), base) end
  end
end

-- A job has ended: one that waits for its place may start, here or in a queue that shares the limit.
function queue_places.freed(base, limits)
  if not queue_places.are_limited(limits) then return end
  wake.sleeper(base)
  queue_places.free_others(base, limits)
end

return queue_places
