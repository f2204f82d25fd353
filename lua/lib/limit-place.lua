--- @include "sleepers"
--- @include "limit-control"

-- The keys of a queue's limits, and what waits for a place under concurrency limits.

local function queue_limit_waiting(control)
  return control .. ':queues'
end

-- Wakes everything that waits for a shared limit: a worker of each other queue, and programs in limiter.wait.
local function queue_limit_call_others(control, base)
  redis.call('PUBLISH', control .. ':wake', '')
  for _, other in ipairs(redis.call('SMEMBERS', queue_limit_waiting(control))) do
    redis.call('SREM', queue_limit_waiting(control), other)
    if other ~= base then wake.sleeper(other) end
  end
end

local function queue_limits_have_places(limits)
  return limits and string.find(limits, '"algorithm":"concurrency"', 1, true)
end

-- A job has ended, and its queue does not need its place. limits: JSON
local function queue_limits_free_others(base, limits)
  if not queue_limits_have_places(limits) then return end
  for _, l in ipairs(cjson.decode(limits)) do
    if l.shared and l.algorithm == 'concurrency' then queue_limit_call_others(queue_limit_control(l, base), base) end
  end
end

-- A job has ended: one that waits for its place may start, here or in a queue that shares the limit.
local function queue_limits_freed(base, limits)
  if not queue_limits_have_places(limits) then return end
  wake.sleeper(base)
  queue_limits_free_others(base, limits)
end
