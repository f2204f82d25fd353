--- @include "clock"
--- @include "shape"
--- @include "meter"

-- What the scripts that change a shape share.

-- Makes sure that a shape is stored; the first one is born now.
local function reshape_begin(key, now)
  redis.call('HSETNX', key, 'born', us_text(now))
  redis.call('HSETNX', key, 'rev', 0)
  local stored = redis.call('HMGET', key, 'declared', 'overrides')
  return shape_document(stored[1]), shape_document(stored[2])
end

-- Applies the change to the bucket at the moment it was made, wakes the workers that sleep, and answers with the
-- whole shape.
local function reshape_end(key, base, now)
  local shape = shape_load(key, base, now)
  if shape.interval and redis.call('EXISTS', base .. 'meta:meter') == 1 then
    local m = meter_open(base .. 'meta:meter', now, shape, '')
    if m.changed then meter_save(base .. 'meta:meter', m) end
  end
  redis.call('PUBLISH', base .. 'meta:wake', shape.rev)
  return { 1, redis.call('HGETALL', key) }
end
