--- @include "sleepers"

-- A group became ready. Workers that sleep until a held group's slot do not know: if no other group was ready, one of
-- them asks at once.
local function group_wake(base)
  if redis.call('ZCARD', base .. 'meta:groups:ready') > 1 then return end
  redis.call('ZADD', base .. 'marker', 0, '0')
  sleepers_call_first(base)
end
