--- @include "clock"
--- @include "capacity"

-- What the scripts that let jobs in share. Their answers begin alike (src/admission-reply.ts reads them):
--   1 status  1 accepted, -1 Redis lost the shape that the caller knows, -2 full, -3 cost over the burst,
--             -4 larger than the capacity
--   2 detail  of a refusal: {retry ms, depth, capacity, paused}, {cost, burst} or {jobs, capacity}

-- Whether the job is new: given ids that exist and live deduplication ids add nothing. `seen` collects the ids
-- of one call, so that duplicates inside it count once.
local function admission_is_new(base, id, deduplication_id, seen)
  if id ~= '' and (seen['j:' .. id] or redis.call('EXISTS', base .. id) == 1) then return false end
  if deduplication_id ~= '' then
    if seen['d:' .. deduplication_id] then return false end
    local key = base .. 'de:' .. deduplication_id
    local owner = redis.call('GET', key)
    -- As in BullMQ: a key without an end whose job is gone is stale.
    if owner and (redis.call('EXISTS', base .. owner) == 1 or redis.call('PTTL', key) ~= -1) then return false end
    seen['d:' .. deduplication_id] = true
  end
  if id ~= '' then seen['j:' .. id] = true end
  return true
end

local function admission_cost_error(shape, cost)
  if shape.interval and shape.mode == 'enforce' and cost > shape.burst then
    return { -3, { exact_text(cost), exact_text(shape.burst) } }
  end
  return nil
end

-- Nil where n new jobs may enter, else the refusal.
local function admission_refusal(base, shape, now, n)
  if shape.capacity and shape.mode == 'enforce' and n > shape.capacity then
    return { -4, { n, shape.capacity } }
  end
  local depth = capacity_overflow(base, shape, now, n)
  if not depth then return nil end
  if shape.mode == 'shadow' then
    redis.call('HINCRBY', base .. 'meta:meter', 'shadowRefused', n)
    return nil
  end
  return { -2, capacity_refuse(base, shape, now, depth, n) }
end

-- How many new jobs fit for sure, as long as nothing but them is added.
local function admission_places(base, shape, now)
  if not shape.capacity or shape.mode == 'off' then return math.huge end
  return shape.capacity - capacity_depth(base, shape, now) - capacity_claimed(shape, now)
end
