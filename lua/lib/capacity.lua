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

-- When a job was ready, ms, by its fields timestamp, opts and processedOn.
local function capacity_ready_ms(fields)
  local delay = tonumber(cjson.decode(fields[2] or '{}').delay) or 0
  return math.max(tonumber(fields[1]) + delay, tonumber(fields[3]) or 0)
end

-- These fields of the job whose age is that of the head; nil if none waits. Which group is next changes with each
-- departure: with groups it is the older one of the first jobs with and without a group.
local function capacity_head_fields(base, shape, now)
  local ids, oldest = { (capacity_head(base, shape, now)) }, nil
  if shape and shape.groups then
    ids = { redis.call('LINDEX', base .. 'wait', -1) or nil }
    ids[#ids + 1] = redis.call('ZRANGE', base .. 'prioritized', 0, 0)[1]
  end
  for _, id in ipairs(ids) do
    local fields = redis.call('HMGET', base .. id, 'timestamp', 'opts', 'processedOn')
    if fields[1] and not (oldest and capacity_ready_ms(oldest) <= capacity_ready_ms(fields)) then oldest = fields end
  end
  return oldest
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
