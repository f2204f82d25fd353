local as_text = use 'redis/as-text'

-- How many places are taken, and how many exist.

local occupancy = {}

-- The highest score of delayed jobs that take a place; nil if all do.
function occupancy.due(shape, now)
  if not shape.capacity_horizon_ms then return nil end
  -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
  return (math.floor(now / 1000) + shape.capacity_horizon_ms + 1) * 4096 - 1
end

-- Number of jobs that take a place. Delayed jobs beyond the capacity horizon, if set, do not. Second, how many of them
-- wait.
function occupancy.depth(base, shape, now)
  local due, delayed = occupancy.due(shape, now), nil
  if due then
    delayed = redis.call('ZCOUNT', base .. 'delayed', '-inf', as_text.exact(due))
  else
    delayed = redis.call('ZCARD', base .. 'delayed')
  end
  local waiting = redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized')
  return waiting + delayed + redis.call('ZCARD', base .. 'waiting-children'), waiting
end

-- The same with the places that bulks have claimed.
function occupancy.taken(base, shape, now)
  local depth = occupancy.depth(base, shape, now)
  return shape.claimed_until < now and depth or depth + shape.claimed
end

-- Some places may be reserved for important jobs: shape.reserved is their total, then 'p:n' for each n places that only
-- jobs up to priority p may take (src/shape/reserved-places.ts).

-- The maximum depth once a job of this priority is added. Jobs without a priority count as the least important, unless
-- places are reserved for them (p is 0): then they are the most important ones, as in BullMQ.
function occupancy.limit(shape, priority)
  local limit = shape.capacity
  if not shape.reserved then return limit end
  local least = priority == 0 and not string.find(shape.reserved, ' 0:', 1, true)
  for up_to, places in string.gmatch(shape.reserved, '(%d+):(%d+)') do
    if least or tonumber(up_to) < priority then limit = limit - tonumber(places) end
  end
  return math.max(0, limit)
end

return occupancy
