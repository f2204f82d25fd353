local ageing_open = use 'gate/ageing-open'
local limit_checks = use 'limits/checks'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- The coming departures by the rate, the limits and the pause of a shape, if nothing is added and every slot is used.
-- Computed in memory; nothing is stored.
--   p.offset   of the latest computed departure, µs from now, not rounded
--   p.meter    nil without a rate
--   p.parts    the limits on units per time, as in limits/queue-limits
--   p.id_at    if only some jobs count, or they do not depart in BullMQ's order: a function of n, the id of the n-th
--              waiting job
--   p.left     places left by limits on running jobs, infinite without one. Places that become free are unknown here
--   p.taken    the name of such a limit that has none left, nil if there is none
--   p.limit    the name of the limit that held one of the latest departures longer than those before it
local schedule = {
  -- Number of departures computed one by one under limits, fewer for a start that is reported with each job, and number
  -- of departures that use the jobs' own costs.
  EXACT = 200, EXACT_START = 50, COSTS = 32,
}

-- For a pool, the total of all members that are not held.
local function places_left(l, key, now)
  if not l.pool then return l.limit - redis.call('ZCOUNT', key, '(' .. as_text.us(now), '+inf') end
  local left = 0
  for _, m in ipairs(l.verbs.open(key, l, now).members) do
    left = left + (m.held > 0 and 0 or m.l.mode == 'off' and math.huge or math.max(0, m.l.limit - m.s.used))
  end
  return left
end

function schedule.open_limits(p, shape)
  for _, l in ipairs(cjson.decode(shape.limits)) do
    local key = queue_limits.prepare(l, shape, p.base, p.now)
    if l.algorithm == 'concurrency' then
      local left = l.mode ~= 'enforce' and l.limit or places_left(l, key, p.now)
      if l.mode == 'enforce' then p.left = math.min(p.left, math.max(0, left)) end
      if left <= 0 then p.taken = p.taken or l.name end
    elseif l.mode ~= 'off' then
      local s = queue_limits.planned(l, l.verbs.open(key, l, p.now))
      p.parts[#p.parts + 1] = { l = l, s = s, offset = 0, blocked = l.pool and s.held or limit_checks.blocked(l, key, p.now), sum = 0 }
    end
  end
end

-- delayed: whether delayed jobs follow the waiting ones, in the order in which they are due: for places, not for a
-- start
function schedule.open(base, shape, now, delayed)
  local p = { base = base, now = now, delayed = delayed, times = {}, parts = {}, read = 0, sum = 0, left = math.huge }
  p.offset = math.max(0, shape.paused_until - now)
  if shape.interval then p.meter = meter.open(base .. 'meta:meter', now, shape, '') end
  if shape.limits and shape.mode ~= 'off' then schedule.open_limits(p, shape) end
  p.ready = redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized')
  -- Groups take turns: BullMQ's order is as good as any other.
  local ageing = not shape.groups and ageing_open(base, shape, now)
  if ageing then p.id_at = ageing.order(ageing.queue) end
  return p
end

-- The n-th job to depart: its id and, if it is delayed, its time (µs from now); nothing if there are fewer.
function schedule.job(p, n)
  local base = p.base
  if n <= p.ready then
    if p.id_at then return p.id_at(n) end
    local listed = redis.call('LLEN', base .. 'wait')
    if n <= listed then return redis.call('LINDEX', base .. 'wait', -n) end
    return redis.call('ZRANGE', base .. 'prioritized', n - listed - 1, n - listed - 1)[1]
  end
  if not p.delayed then return nil end
  local at = n - p.ready - 1
  local found = redis.call('ZRANGE', base .. 'delayed', at, at, 'WITHSCORES')
  -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
  if found[1] then return found[1], math.floor(tonumber(found[2]) / 4096) * 1000 - p.now end
end

-- Costs of the next job under each limit, and under the rate: its own, or the mean of the jobs read so far.
function schedule.costs(p, id)
  if not id or p.read == schedule.COSTS then
    for _, part in ipairs(p.parts) do part.cost = p.read > 0 and part.sum / p.read or 1 end
    if p.read > 0 then return p.sum / p.read end
    return p.meter and p.meter.mean_cost or 1
  end
  local cost, deferred, costs, deadline = job_options.cost_of_job(p.base .. id)
  if deferred then return nil end
  p.read, p.sum = p.read + 1, p.sum + cost
  for _, part in ipairs(p.parts) do
    part.cost = queue_limits.cost(part.l, cost, costs)
    part.sum = part.sum + part.cost
  end
  return cost, deadline
end

-- Lets the next job depart. due: its earliest time, µs from now
function schedule.step(p, id, due)
  local m, offset = p.meter, math.max(p.offset, due or 0)
  p.offset = offset
  local cost, deadline = schedule.costs(p, id)
  if not cost then return end
  for _, part in ipairs(p.parts) do
    part.offset = part.l.verbs.earliest(part.s, part.l, part.cost + part.l.kept)
    local wait = limit_checks.wait(part)
    if wait > offset then offset, p.limit = wait, part.l.name end
  end
  local slot = m and bucket.slot(m, cost, meter.after(m, offset))
  -- Rounding must not bring it below the offset that the slot was computed from.
  if m then offset = math.max(offset, meter.offset(m, slot)) end
  local opens = queue_limits.open_from(p.parts, m, offset)
  if opens > offset then offset, slot = opens, m and meter.after(m, opens) end
  -- The job will fail at once, and takes no slot.
  if deadline and p.now + math.ceil(offset) > deadline then return end
  for _, part in ipairs(p.parts) do
    if part.offset <= offset then part.l.verbs.charge(part.s, part.l, part.cost, offset) end
  end
  if m then bucket.charge(m, cost, slot) end
  p.offset = offset
end

-- When a limit lets the last of `more` further jobs pass, µs from now. Members of a pool share them evenly.
function schedule.far_of_limit(p, part, more)
  if part.l.pool then
    local free, offset = {}, math.huge
    for _, one in ipairs(part.l.verbs.parts(part)) do
      if one.blocked == 0 then free[#free + 1] = one end
      offset = math.min(offset, one.blocked)
    end
    for _, one in ipairs(free) do
      one.sum = part.sum
      if one.l.mode ~= 'off' then offset = math.max(offset, schedule.far_of_limit(p, one, math.ceil(more / #free))) end
    end
    return offset
  end
  local l, cost, copy = part.l, part.sum > 0 and part.sum / p.read or 1, {}
  for field, value in pairs(part.s) do copy[field] = value end
  if l.interval or (l.service and copy.used + more * cost <= l.limit) then
    l.verbs.charge(copy, l, (more - 1) * cost, p.offset)
    return l.verbs.earliest(copy, l, cost + l.kept)
  end
  local limit = l.limit - l.kept
  local used = math.min(limit, copy.used or copy.sum - copy.base)
  local windows = math.ceil((used + more * cost) / limit) - 1
  if windows <= 0 then return p.offset end
  return (copy.finish and copy.finish - p.now or p.offset + l.window) + (windows - 1) * l.window
end

-- When the last of `more` jobs departs, after those computed so far: the slowest part alone decides.
function schedule.far(p, more)
  local m, offset = p.meter, p.offset
  for _, part in ipairs(p.parts) do
    if part.l.mode == 'enforce' then offset = math.max(offset, schedule.far_of_limit(p, part, more)) end
  end
  if not m then return offset end
  local mean = p.read > 0 and p.sum / p.read or m.mean_cost
  return math.max(offset, meter.offset(m, bucket.nth_slot(m, more, mean, mean, meter.after(m, p.offset))))
end

-- The time (µs) of the n-th departure from now; second, true if fewer jobs wait, and the missing ones are assumed.
function schedule.nth(p, n)
  local exact = #p.parts == 0 and schedule.COSTS or p.delayed and schedule.EXACT or schedule.EXACT_START
  for i = #p.times + 1, math.min(n, exact) do
    local id, due
    if i <= schedule.COSTS or i > p.ready then id, due = schedule.job(p, i) end
    if not id and i > p.ready then p.missing = p.missing or i end
    schedule.step(p, id, due)
    p.times[i] = p.offset
  end
  local missing = p.missing and n >= p.missing or false
  if n <= exact then return p.now + math.ceil(p.times[n]), missing end
  local offset = schedule.far(p, n - exact)
  if n > p.ready then
    local id, due = schedule.job(p, n)
    offset, missing = math.max(offset, due or 0), not id
  end
  return p.now + math.ceil(offset), missing
end

return schedule
