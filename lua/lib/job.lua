-- As in src/job-options.ts: a job of a foreign producer can not stop the queue for ever.
local MAX_COST = 1000000000

local function cost_valid(cost)
  cost = tonumber(cost)
  return cost and cost > 0 and math.min(cost, MAX_COST) or 1
end

-- What a job costs, from its stored options: 1 unless they say otherwise; then its costs in other units, unit -> cost,
-- nil where there are none. The options are parsed only if they may say so.
local function cost_of_options(options)
  if not options or not string.find(options, '"costs?":') then return 1 end
  local parsed = cjson.decode(options)
  local costs = type(parsed.costs) == 'table' and parsed.costs or nil
  for unit, cost in pairs(costs or {}) do costs[unit] = cost_valid(cost) end
  return cost_valid(parsed.cost), costs
end

-- Cost of a waiting job, whether it will only be failed (BullMQ's deferred failure: such a job never runs), and its costs
-- in other units.
local function job_cost(job_key)
  local job = redis.call('HMGET', job_key, 'opts', 'defa')
  local cost, costs = cost_of_options(job[1])
  return cost, job[2] and true or false, costs
end
