local next_departure = use 'admission/next-departure'
local schedule = use 'admission/schedule'
local ageing_open = use 'gate/ageing-open'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'

-- Position of a waiting job, and an estimate of its start from the mean cost of the jobs ahead. BullMQ serves the wait
-- list before the prioritized set, unless jobs age.
local estimate = {}

-- How many jobs of a wait list depart before one of them, nil if the job is not found. looked_at: how many are searched
-- from each end
function estimate.listed(list, id, looked_at)
  local at = redis.call('LPOS', list, id, 'MAXLEN', looked_at)
    or redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', looked_at)
  return at and redis.call('LLEN', list) - 1 - at or nil
end

-- The same with ageing, in a line of gate/ageing-open.
function estimate.aged(ageing, line, id, looked_at)
  if redis.call('ZSCORE', line.set, id) then return ageing.ahead(line, id) end
  local index = line.list and estimate.listed(line.list, id, looked_at)
  return index and ageing.ahead(line, id, index) or nil
end

function estimate.position(base, shape, now, id, looked_at)
  local ageing = ageing_open(base, shape, now)
  if ageing then return estimate.aged(ageing, ageing.queue, id, looked_at) end
  local rank = redis.call('ZRANK', base .. 'prioritized', id)
  if rank then return redis.call('LLEN', base .. 'wait') + rank end
  return estimate.listed(base .. 'wait', id, looked_at)
end

-- The start (µs) as text of the job at a position, '' if unknown: in an open-ended pause no start is known.
function estimate.start_at(base, shape, now, position)
  if not shape or redis.call('HEXISTS', base .. 'meta', 'paused') == 1 then return '' end
  if shape.limits and shape.mode == 'enforce' then
    local p = schedule.open(base, shape, now)
    -- The time when a place of a concurrency limit becomes free is unknown, and such a limit alone says nothing about
    -- the jobs ahead.
    if p.left == 0 or (position > 0 and not p.meter and #p.parts == 0) then return '' end
    return as_text.us((schedule.nth(p, position + 1)))
  end
  local m = next_departure.meter(base, shape, now)
  if not m then
    if position > 0 then return '' end
    return as_text.us(math.max(now, shape.paused_until))
  end
  return as_text.us(meter.nth_start(m, position + 1, next_departure.head_cost(base, shape, now) or 1, shape.paused_until))
end

-- Returns position and start (µs) as text, '' if unknown: a job that is delayed, has ended or waits for its children
-- has no position.
function estimate.start(base, shape, now, id, looked_at)
  local position = estimate.position(base, shape, now, id, looked_at)
  if not position then return '', '' end
  return position, estimate.start_at(base, shape, now, position)
end

return estimate
