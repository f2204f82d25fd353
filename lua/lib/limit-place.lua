--- @include "sleepers"
--- @include "limit-control"

-- Where the limits of a queue are, and who waits for a place under those of concurrency.

local function queue_limit_waiting(control)
  return control .. ':queues'
end

-- Calls those who wait for a shared limit: a worker of each other queue, and programs in limiter.wait.
local function queue_limit_call_others(control, base)
  redis.call('PUBLISH', control .. ':wake', '')
  for _, other in ipairs(redis.call('SMEMBERS', queue_limit_waiting(control))) do
    redis.call('SREM', queue_limit_waiting(control), other)
    if other ~= base then sleepers_call_first(other) end
  end
end

local function queue_limits_have_places(limits)
  return limits and string.find(limits, '"algorithm":"concurrency"', 1, true)
end

-- A job has ended, and its queue has no use for its place. limits: JSON
local function queue_limits_free_others(base, limits)
  if not queue_limits_have_places(limits) then return end
  for _, l in ipairs(cjson.decode(limits)) do
    if l.shared and l.algorithm == 'concurrency' then queue_limit_call_others(queue_limit_control(l, base), base) end
  end
end

-- A job has ended: one that waits for its place may start, here or in a queue that shares the limit.
local function queue_limits_freed(base, limits)
  if not queue_limits_have_places(limits) then return end
  sleepers_call_first(base)
  queue_limits_free_others(base, limits)
end
