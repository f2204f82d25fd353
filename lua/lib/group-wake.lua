--- @include "sleepers"

-- A group became ready, and none was before: workers that sleep until a held group's slot do not know. One of them asks
-- at once.
local function group_wake(base)
  redis.call('ZADD', base .. 'marker', 0, '0')
  sleepers_call_first(base)
end
