local free_places = use 'admission/free-places'
local occupancy = use 'admission/occupancy'
local refusals = use 'admission/refusals'

-- Places for new jobs.

local places = {}

-- Nil if all the new jobs fit, else the largest shortage: the depth and the limit that they exceed, how many of them
-- are subject to it, how many places are missing, and how many jobs would have to be dropped, one for one. The order of
-- the jobs does not matter: the least important count first.
function places.lack(base, shape, now, jobs)
  if not shape.capacity or #jobs == 0 then return nil end
  local depth, counts = occupancy.depth(base, shape, now) + occupancy.claimed(shape, now), {}
  if depth + (jobs.count or #jobs) <= shape.capacity and not shape.reserved then return nil end
  for _, job in ipairs(jobs) do
    local limit = occupancy.limit(shape, job.terms.priority)
    counts[limit] = (counts[limit] or 0) + (job.n or 1)
  end
  local lack, swaps = nil, 0
  for limit in pairs(counts) do
    local n = 0
    for other, count in pairs(counts) do if other <= limit then n = n + count end end
    local missing = depth + n - limit
    swaps = math.max(swaps, math.min(missing, n))
    local more = not lack or missing > lack.missing or (missing == lack.missing and limit < lack.limit)
    if missing > 0 and more then
      lack = { depth = depth, limit = limit, jobs = n, missing = missing }
    end
  end
  if lack then lack.swaps = swaps end
  return lack
end

-- The details of a refusal, which is counted: {retry ms, depth, capacity, '1' if paused, places needed}. At least one
-- of lack and late is given (admission/lateness); a job with neither a place nor a start in time waits for both.
function places.refuse(base, shape, now, jobs, lack, late)
  local open_ended = redis.call('HEXISTS', base .. 'meta', 'paused') == 1
  local retry = late and late.retry_ms or 1
  if lack then
    local OPEN_ENDED_PAUSE_MS = 60000
    local free = open_ended and OPEN_ENDED_PAUSE_MS or free_places.retry_ms(base, shape, now, lack.missing)
    retry = math.max(retry, free)
  end
  local depth = lack and lack.depth or occupancy.depth(base, shape, now) + occupancy.claimed(shape, now)
  local capacity = lack and lack.limit or shape.capacity or ''
  refusals.note(base .. 'meta:meter', base .. 'events', now, refusals.of(jobs), depth, capacity)
  local paused = open_ended or shape.paused_until > now
  return { retry, depth, capacity, paused and '1' or '0', lack and lack.jobs or jobs.count or #jobs }
end

return places
