--[[
  Corrects what a job was charged once its cost is known. The same attempt settles again only what has changed since.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  job id
    [2]  number of the attempt
    [3]  JSON: unit -> what it cost; '' is the unit of the rate
    [4]  how long it is remembered, ms
  Returns how many buckets were corrected; 0 where the job is gone, since nobody knows then what it was charged.
]]
--- @include "lib/clock"
--- @include "lib/shape"
--- @include "lib/meter"
--- @include "lib/job"
--- @include "lib/queue-limits"
local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now, memory = redis_now(), base .. 'meta:settled:' .. ARGV[1]
local shape = shape_load(key, base, now)
local options = redis.call('HGET', base .. ARGV[1], 'opts')
if not shape or not options or shape.mode == 'off' then return 0 end
local cost, costs = cost_of_options(options)
local corrected = 0

-- What is still to be charged of a unit, below 0 to be given back.
local function outstanding(unit, actual)
  local field = ARGV[2] .. ':' .. unit
  local charged = tonumber(redis.call('HGET', memory, field)) or unit == '' and cost or costs and costs[unit] or 1
  redis.call('HSET', memory, field, exact_text(actual))
  redis.call('PEXPIRE', memory, ARGV[4])
  return actual - charged
end

-- A credit never lowers TAT below one full bucket.
local function settle_meter(change)
  if not shape.interval then return end
  local m = meter_open(base .. 'meta:meter', now, shape, '')
  m.tat = math.max(m.tat + bucket_ceil(change * m.interval), math.max(m.now, m.last) - m.burst * m.interval)
  meter_save(base .. 'meta:meter', m)
  corrected = corrected + 1
end

for unit, actual in pairs(cjson.decode(ARGV[3])) do
  local change = outstanding(unit, actual)
  if change ~= 0 then
    if unit == '' then settle_meter(change) end
    for _, part in ipairs(shape.limits and queue_limits_open(shape, base, now) or {}) do
      local l = part.l
      if (l.unit or '') == unit and l.verbs.adjust and l.mode ~= 'off' then
        limit_settle(l, part.s, change)
        corrected = corrected + 1
      end
    end
  end
end
if corrected > 0 then sleepers_call_first(base) end
return corrected
