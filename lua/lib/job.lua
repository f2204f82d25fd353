-- As in src/job-options.ts: a job of a foreign producer can not stop the queue for ever.
local MAX_COST = 1000000000

-- What a job costs, from its stored options: 1 unless they say otherwise. The options are parsed only if they may.
local function cost_of_options(options)
  if not options or not string.find(options, '"cost":', 1, true) then return 1 end
  local cost = tonumber(cjson.decode(options).cost)
  if cost and cost > 0 then return math.min(cost, MAX_COST) end
  return 1
end

-- Cost of a waiting job, and whether it will only be failed (BullMQ's deferred failure): such a job never runs.
local function job_cost(job_key)
  local job = redis.call('HMGET', job_key, 'opts', 'defa')
  return cost_of_options(job[1]), job[2] and true or false
end
