--- @include "text"
--- @include "ageing"
--- @include "bucket"
--- @include "depth"
--- @include "shape"
--- @include "meter"
--- @include "job"
--- @include "refusals"

-- Places: how many are taken, and which job leaves next.

-- The next job to leave, nil if none waits.
local function capacity_head(base, shape, now)
  local ageing = ageing_open(base, shape, now)
  if ageing then return (ageing.first(ageing.queue) or {}).id end
  return redis.call('LINDEX', base .. 'wait', -1) or redis.call('ZRANGE', base .. 'prioritized', 0, 0)[1]
end

local function capacity_head_cost(base, shape, now)
  local id = capacity_head(base, shape, now)
  if not id then return nil end
  return (job_cost(base .. id))
end

-- The meter for estimates only: it is opened, never saved.
local function capacity_meter(base, shape, now)
  if not shape.interval then return nil end
  return meter.open(base .. 'meta:meter', now, shape, '')
end
