--- @include "keep-key"
--- @include "limit-place"

-- Keeps the places of running jobs under the limits of their queue (limits/concurrency) while their locks are extended.
-- lock_ms: how long these last from now on
local function keep_places(base, lock_ms)
  local limits = redis.call('HGET', base .. 'meta:shape', 'limits')
  if not queue_limits_have_places(limits) then return end
  for _, l in ipairs(cjson.decode(limits)) do
    if l.algorithm == 'concurrency' then keep_key(queue_limit_control(l, base) .. l.state, lock_ms + 1000) end
  end
end
