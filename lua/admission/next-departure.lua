local ageing_open = use 'gate/ageing-open'
local meter = use 'meter/meter'
local job_options = use 'shape/job-options'

-- Which job departs next, and the meter for estimates.

local next_departure = {}

-- The next job to depart, nil if none waits.
function next_departure.head(base, shape, now)
  local ageing = ageing_open(base, shape, now)
  if ageing then return (ageing.first(ageing.queue) or {}).id end
  return redis.call('LINDEX', base .. 'wait', -1) or redis.call('ZRANGE', base .. 'prioritized', 0, 0)[1]
end

function next_departure.head_cost(base, shape, now)
  local id = next_departure.head(base, shape, now)
  if not id then return nil end
  return (job_options.cost_of_job(base .. id))
end

-- The meter for estimates only: it is opened, never saved.
function next_departure.meter(base, shape, now)
  if not shape.interval then return nil end
  return meter.open(base .. 'meta:meter', now, shape, '')
end

return next_departure
