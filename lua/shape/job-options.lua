local job_options = {}

-- As in src/admission/job-options.ts: otherwise a job of a foreign producer could stop the queue forever.
local MAX_COST = 1000000000

local function cost_valid(cost)
  cost = tonumber(cost)
  return cost and cost > 0 and math.min(cost, MAX_COST) or 1
end

-- The properties of a job that select limits: the values of its keys, name -> value, and its tier as ':tier', which is
-- no name of a key. Nil if it has neither.
function job_options.keys(keys, tier)
  if type(tier) ~= 'string' then tier = nil end
  if type(keys) ~= 'table' then return tier and { [':tier'] = tier } end
  for name, value in pairs(keys) do
    if type(value) == 'number' then keys[name] = string.format('%.14g', value)
    elseif type(value) ~= 'string' then keys[name] = nil end
  end
  keys[':tier'] = tier
  return keys
end

-- The cost of a job from its stored options, 1 by default; second, its costs in other units, unit -> cost, nil if there
-- are none; third, its deadline, ms since 1970, nil if it has none; fourth, its keys and tier, nil if it has neither.
-- The options are only parsed if they may contain these. known: has its keys, if they need not be read
function job_options.cost(options, known)
  if not options then return 1 end
  -- A pattern would take four times as long as a plain text.
  if not (string.find(options, '"cost', 1, true) or string.find(options, '"mustStartBefore":', 1, true)
    or string.find(options, '"tier":', 1, true)) then
    if known then return 1, nil, nil, known.keys end
    if not string.find(options, '"keys":', 1, true) then return 1 end
  end
  local parsed = cjson.decode(options)
  local costs = type(parsed.costs) == 'table' and parsed.costs or nil
  -- A job may cost nothing under a limit.
  for unit, cost in pairs(costs or {}) do costs[unit] = tonumber(cost) == 0 and 0 or cost_valid(cost) end
  return cost_valid(parsed.cost), costs, tonumber(parsed.mustStartBefore), job_options.keys(parsed.keys, parsed.tier)
end

-- Cost of a waiting job, whether it will only be failed (BullMQ's deferred failure: such a job never runs), its costs
-- in other units, its deadline, µs, and its keys. known: as above
function job_options.cost_of_job(job_key, known)
  local job = redis.call('HMGET', job_key, 'opts', 'defa')
  local cost, costs, deadline, keys = job_options.cost(job[1], known)
  return cost, job[2] and true or false, costs, deadline and deadline * 1000, keys
end

-- Marks a job that cannot start in time as failing. src/worker/deadline.ts reads the reason. deadline: µs
function job_options.expire(base, id, deadline)
  local ms = string.format('%.0f', deadline / 1000)
  redis.call('HSET', base .. id, 'defa', 'deadline: could not start before ' .. ms)
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'expired', 'jobId', id, 'deadline', ms)
end

return job_options
