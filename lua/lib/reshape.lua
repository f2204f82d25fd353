--- @include "clock"
--- @include "shape"
--- @include "meter"

-- What the scripts that change a shape share.

-- Makes sure that a shape is stored; the first one is born now. Returns what was declared and overridden, or nothing
-- where Redis has lost the shape that the caller knows: it has to be put back before it is changed. An override whose
-- time is over ends then, not with the change that comes after it.
local function reshape_begin(key, base, now, known_born, known_rev)
  if shape_lost(shape_load(key, base, now), known_born or '', known_rev) then return nil end
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
