local free_places = use 'admission/free-places'
local lateness = use 'admission/lateness'
local occupancy = use 'admission/occupancy'
local refusals = use 'admission/refusals'
local group_admission = use 'groups/admission'
local as_text = use 'redis/as-text'

-- Shared by the scripts that admit jobs. Their replies begin alike (read by src/admission/reply.ts):
--   1 status  1 accepted, -1 Redis lost the shape that the caller knows, -2 full, -3 cost over the burst, -4 larger
--             than the capacity, -5 could not start in time, -6 has a deadline that no start can meet
--   2 detail  of a refusal: {retry ms, depth, capacity, paused, places needed}, {cost, burst}, {jobs, capacity}, {retry
--             ms, depth, capacity or '', paused, start µs, max wait ms or '', deadline ms or '', and if a schedule is
--             closed until then: its group, or '' for the queue} or {deadline ms, now ms, delay ms}

local admission = {}

-- Whether the job is new: BullMQ adds none for an existing id or a live deduplication id. `seen` collects the ids of
-- one call, so that duplicates within it count once.
function admission.is_new(base, id, deduplication_id, seen)
  if id ~= '' and (seen['j:' .. id] or redis.call('EXISTS', base .. id) == 1) then return false end
  if deduplication_id ~= '' then
    if seen['d:' .. deduplication_id] then return false end
    local key = base .. 'de:' .. deduplication_id
    local owner = redis.call('GET', key)
    -- As in BullMQ: a key without a TTL is stale once its job is gone.
    if owner and (redis.call('EXISTS', base .. owner) == 1 or redis.call('PTTL', key) ~= -1) then return false end
    seen['d:' .. deduplication_id] = true
  end
  if id ~= '' then seen['j:' .. id] = true end
  return true
end

-- The refusal of a job whose cost exceeds the queue's burst, nil if it fits.
function admission.cost_error(shape, cost)
  if not (shape.interval and shape.mode == 'enforce') or cost <= shape.burst then return nil end
  return { -3, { as_text.exact(cost), as_text.exact(shape.burst) } }
end

-- Refuses a deadline that has passed, or that is before the end of the job's own delay.
function admission.deadline_error(now, terms)
  local deadline, now_ms = terms.deadline, math.floor(now / 1000)
  if not deadline or deadline >= now_ms + terms.delay then return nil end
  return { -6, { as_text.us(deadline), as_text.us(now_ms), as_text.us(terms.delay) } }
end

-- The first refusal of one of these jobs for its cost, by its queue or its group.
function admission.too_costly(shape, jobs)
  for _, job in ipairs(jobs) do
    local refusal = admission.cost_error(shape, job.cost) or group_admission.cost_error(jobs.groups, job)
    if refusal then return refusal end
  end
end

-- Nil if all the new jobs may enter, else the refusal: by cost, by the bounds of their groups, or by the queue. jobs:
-- {cost, terms, group (id and priority, if any), options (packed, nil if unknown)} each, with `groups`, opened, if the
-- queue has them. If there are more, `count` of them, n of each. choose (admission/overflow): set if waiting jobs may
-- be dropped for them; its choice is the second result. timed: false if their start times have been checked already.
function admission.refusal(base, shape, now, jobs, choose, timed)
  local refusal = admission.too_costly(shape, jobs) or group_admission.refusal_of_keys(base, shape, now, jobs)
  if not refusal then refusal, jobs.swaps = group_admission.refusal(shape, jobs, choose) end
  if refusal then return refusal end
  return admission.refusal_of_queue(base, shape, now, jobs, choose, timed)
end

-- Nil if all the new jobs fit, else the largest shortage: the depth and the limit that they exceed, how many of them
-- that limit applies to, how many places are missing, and how many jobs would have to be dropped, one for one. The
-- order of the jobs does not matter: the least important count first.
local function lack_of(base, shape, now, jobs)
  if not shape.capacity or #jobs == 0 then return nil end
  local depth, counts = occupancy.taken(base, shape, now), {}
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
local function refuse(base, shape, now, jobs, lack, late)
  local open_ended = redis.call('HEXISTS', base .. 'meta', 'paused') == 1
  local retry = late and late.retry_ms or 1
  if lack then
    local OPEN_ENDED_PAUSE_MS = 60000
    local held = jobs.groups and jobs.groups:held_slot(lack.missing) or 0
    local free = open_ended and OPEN_ENDED_PAUSE_MS or free_places.retry_ms(base, shape, now, lack.missing, held)
    retry = math.max(retry, free)
  end
  local depth = lack and lack.depth or occupancy.taken(base, shape, now)
  local capacity = lack and lack.limit or shape.capacity or ''
  refusals.note(base, now, refusals.of(jobs), depth, capacity)
  local paused = open_ended or shape.paused_until > now
  return { retry, depth, capacity, paused and '1' or '0', lack and lack.jobs or jobs.count or #jobs }
end

-- The same, by the queue alone. jobs.swaps: how many of each group have to replace others of it, and the refusal if
-- they cannot (groups/admission), nil if none has to.
function admission.refusal_of_queue(base, shape, now, jobs, choose, timed)
  if shape.mode == 'off' or #jobs == 0 then return nil end
  local enforced, count = shape.mode == 'enforce', jobs.count or #jobs
  local lack = lack_of(base, shape, now, jobs)
  if enforced and shape.capacity and count > shape.capacity then return { -4, { count, shape.capacity } } end
  -- If all places are reserved, even a single job would be too large: then the queue counts as full.
  if enforced and lack and lack.limit > 0 and lack.jobs > lack.limit then return { -4, { lack.jobs, lack.limit } } end
  -- Retries and a lowered capacity may leave the queue above its capacity. A swap would keep it there.
  local full = jobs.swaps
  if lack then full = lack.depth <= shape.capacity end
  local gone = full and enforced and choose and choose(base, shape, jobs, lack and lack.swaps or 0)
  if jobs.swaps and not gone and not lack then return jobs.swaps.refuse() end
  local left = gone and shape.overflow == 'drop-oldest' and #gone or 0
  local late = timed ~= false and lateness.find(base, shape, now, jobs, left)
  -- Jobs that other scripts have removed make no job late.
  if late and jobs.groups and jobs.groups:sweep() > 0 then late = lateness.find(base, shape, now, jobs, left) end
  if gone then lack = nil end
  if not lack and not late then return nil, gone end
  if not enforced then
    redis.call('HINCRBY', base .. 'meta:meter', 'shadowRefused', count)
    return nil
  end
  local detail = refuse(base, shape, now, jobs, lack, late)
  if not late then return { -2, detail } end
  redis.call('HINCRBY', base .. 'meta:meter', 'refusedLate', refusals.of(jobs))
  detail[5], detail[6] = as_text.us(late.start), late.max_wait or ''
  detail[7] = late.deadline and as_text.us(late.deadline) or ''
  detail[8], detail[9] = late.closed, late.limit
  return { -5, detail }
end

-- Number of new jobs that certainly fit if no others are added.
function admission.places(base, shape, now)
  if not shape.capacity or shape.mode == 'off' then return math.huge end
  return shape.unreserved - occupancy.taken(base, shape, now)
end

return admission
