--[[
  Corrects the charge of a job once its cost is known. A repeated call for the same attempt settles only the difference.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  job id
    [2]  number of the attempt
    [3]  JSON: unit -> what it cost; '' is the unit of the rate
    [4]  how long it is remembered, ms
  A charge that has refilled since then is not refunded again: other jobs have used it.
  Returns how many buckets were corrected; 0 if the job is gone, since its charge is then unknown; {unit} if no limit
  counts that unit: then nothing was done.
]]
--- @include "lib/clock"
--- @include "lib/shape"
--- @include "lib/meter"
--- @include "lib/job"
--- @include "lib/group-limits"
local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now, memory = redis_now(), base .. 'meta:settled:' .. ARGV[1]
local shape = shape_load(key, base, now)
local job = redis.call('HMGET', base .. ARGV[1], 'opts', 'departure', 'processedOn')
if not shape or not job[1] or shape.mode == 'off' then return 0 end
local cost, costs = cost_of_options(job[1])
local corrected, limits = 0, shape.limits and queue_limits_open(shape, base, now) or {}
-- Those of its group.
local own = group_limits_of(base, shape, now)
local group = own and (groups_library().named(job[1]) or '')
for _, part in ipairs(own and own.open(group) or {}) do limits[#limits + 1] = part end
-- When the job was charged, not later: whole ms if nothing more exact was stored for its last start.
local departure, started_ms = tonumber(job[2]), tonumber(job[3]) or 0
local exact = departure and math.ceil(departure / 1000) == started_ms
local since = exact and departure or (started_ms - 1) * 1000

-- What is still to be charged in a unit; below 0 it is refunded.
local function outstanding(unit, actual)
  local field = ARGV[2] .. ':' .. unit
  local charged = tonumber(redis.call('HGET', memory, field)) or unit == '' and cost or costs and costs[unit] or 1
  redis.call('HSET', memory, field, exact_text(actual))
  redis.call('PEXPIRE', memory, ARGV[4])
  return actual - charged
end

-- Nil if the unit is known, else the reply.
local function unknown(unit)
  if unit == '' then return nil end
  for _, part in ipairs(limits) do if part.l.unit == unit then return nil end end
  return { unit }
end

-- A credit never lowers TAT below one full bucket.
local function settle_meter(change)
  if not shape.interval then return end
  local m = meter.open(base .. 'meta:meter', now, shape, '')
  if change < 0 then change = -math.max(0, -change - math.max(0, now - since) / m.interval) end
  m.tat = math.max(m.tat + bucket.ceil(change * m.interval), math.max(m.now, m.last) - m.burst * m.interval)
  meter.save(base .. 'meta:meter', m)
  corrected = corrected + 1
end

local function settle_limit(part, change)
  local l, s = part.l, part.s
  -- In shadow mode it may not have been charged.
  if not l.verbs.adjust or l.mode ~= 'enforce' then return end
  if change < 0 then change = -limit_credit(l, s, -change, since) end
  limit_settle(l, s, change)
  if change < 0 and l.shared then queue_limit_call_others(l.control, base) end
  corrected = corrected + 1
end

local actuals = cjson.decode(ARGV[3])
for unit in pairs(actuals) do
  local answer = unknown(unit)
  if answer then return answer end
end
for unit, actual in pairs(actuals) do
  local change = outstanding(unit, actual)
  if change ~= 0 then
    if unit == '' then settle_meter(change) end
    for _, part in ipairs(limits) do
      if (part.l.unit or '') == unit then settle_limit(part, change) end
    end
  end
end
if corrected > 0 then
  -- Its group may go sooner.
  if own then
    local g = groups_library().bare(base)
    g:release(group, 'limited')
    g:save()
  end
  sleepers_call_first(base)
end
return corrected
