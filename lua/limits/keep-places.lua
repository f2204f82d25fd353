local queue_limit_control = use 'limits/queue-limit-control'
local queue_places = use 'limits/queue-places'
local keep_key = use 'redis/keep-key'

-- Keeps the places of running jobs under the limits of their queue (limits/concurrency) while their locks are extended.
-- lock_ms: how long these last from now on
local function keep_places(base, lock_ms)
  local limits = redis.call('HGET', base .. 'meta:shape', 'limits')
  if not queue_places.are_limited(limits) then return end
  for _, l in ipairs(cjson.decode(limits)) do
    if l.algorithm == 'concurrency' then keep_key(queue_limit_control(l, base) .. l.state, lock_ms + 1000) end
  end
end

return keep_places
