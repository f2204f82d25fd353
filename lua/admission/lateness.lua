local free_places = use 'admission/free-places'
local next_departure = use 'admission/next-departure'
local schedule = use 'admission/schedule'
local ageing_open = use 'gate/ageing-open'
local group_limits_of = use 'groups/limits-of'
local group_line = use 'groups/line'
local queue_limits = use 'limits/queue-limits'
local scheduled_bucket = use 'limits/scheduled-bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- Whether new jobs could start in time, by the drain schedule: at the rate and the limits, with the mean cost of the
-- jobs ahead, if no others arrive. In an open-ended pause, or without a rate and limits (except for the end of a
-- pause), no schedule is known, and nothing is late.

local lateness = {}

-- Returns a function that computes a start from the number of jobs ahead and the cost, or nil if nothing is known.
function lateness.schedule(base, shape, now)
  if shape.limits and shape.mode ~= 'off' then
    local p = schedule.open(base, shape, now)
    if #p.parts > 0 then return function(ahead) return (schedule.nth(p, ahead + 1)) end end
  end
  local m = next_departure.meter(base, shape, now)
  if not m then
    if shape.paused_until <= now then return nil end
    return function() return shape.paused_until end
  end
  local head = next_departure.head_cost(base, shape, now) or m.mean_cost
  return function(ahead, cost) return meter.nth_start(m, ahead + 1, ahead == 0 and cost or head, shape.paused_until) end
end

-- The jobs sorted by one of their terms, a number; equal ones in their order of arrival. Neighbours with the same terms
-- and cost are merged, as in lateness.line.
function lateness.sorted(jobs, field)
  local alike, values, sorted = {}, {}, {}
  for _, job in ipairs(jobs) do
    local value = job.terms[field]
    if not alike[value] then
      alike[value], values[#values + 1] = {}, value
    end
    table.insert(alike[value], job)
  end
  table.sort(values)
  for _, value in ipairs(values) do
    for _, job in ipairs(alike[value]) do
      local last, n = sorted[#sorted], job.n or 1
      if last and last.terms == job.terms and last.cost == job.cost then last.n = last.n + n
      else sorted[#sorted + 1] = { terms = job.terms, cost = job.cost, n = n } end
    end
  end
  return sorted
end

-- Calls each(job, ahead) for every new job with a start of a queue without groups, in order of departure, with the
-- number of old and new jobs ahead of it; delayed jobs come last. gone: number of jobs at the head that are dropped for
-- the new ones. Of several equal jobs (n), only the first and the last: the others start between these. jobs.ageing:
-- the order of ageing jobs (gate/ageing-open)
function lateness.line(base, now, jobs, gone, each)
  local heads, plain, prioritized, delayed = {}, {}, {}, {}
  for i, job in ipairs(jobs) do
    local terms, kind = job.terms, plain
    job.at = i
    if terms.delay > 0 then kind = delayed
    elseif terms.priority > 0 then kind = prioritized
    elseif terms.place == 'l' then kind = heads end
    if terms.place ~= 'w' then kind[#kind + 1] = job end
  end
  local listed, counts = redis.call('LLEN', base .. 'wait'), {}
  local behind = jobs.ageing and jobs.ageing.behind_all(jobs.ageing.queue)
  -- How many jobs of the prioritized set go before one added at `at` (µs).
  local function as_important(priority, at)
    if behind then return behind(at, priority) - listed end
    if priority == 0 then return 0 end
    -- BullMQ's score is the priority * 2^32 + a counter.
    counts[priority] = counts[priority]
      or redis.call('ZCOUNT', base .. 'prioritized', '-inf', '(' .. as_text.us((priority + 1) * 4294967296))
    return counts[priority]
  end
  local aged, before = #heads + #plain > 0 and as_important(0, now) or 0, 0
  local function run(job, ahead)
    local n = job.n or 1
    each(job, ahead + before)
    if n > 1 then each(job, ahead + before + n - 1) end
    before = before + n
  end
  for i = #heads, 1, -1 do run(heads[i], aged) end
  local ahead = listed - gone
  for _, job in ipairs(plain) do run(job, aged + ahead) end
  ahead, before = ahead + before, 0
  for _, job in ipairs(lateness.sorted(prioritized, 'priority')) do
    run(job, ahead + as_important(job.terms.priority, now))
  end
  before = 0
  for _, job in ipairs(lateness.sorted(delayed, 'delay')) do
    -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
    local due = (math.floor(now / 1000) + job.terms.delay + 1) * 4096 - 1
    local sooner = redis.call('ZCOUNT', base .. 'delayed', '-inf', as_text.exact(due))
    run(job, ahead + as_important(job.terms.priority, now + job.terms.delay * 1000) + sooner)
  end
end

-- The limits that a new job is subject to, as parts. of_queue: those of the queue, opened; of_keys: groups/limits-of
local function parts_of(of_queue, of_keys, job)
  local parts, cost, costs, _, keys = { unpack(of_queue) }, nil, nil, nil, nil
  if job.options then cost, costs, _, keys = job_options.cost(cjson.encode(cmsgpack.unpack(job.options))) end
  for _, part in ipairs(of_keys and of_keys.open(job.group and job.group[1] or '', keys) or {}) do parts[#parts + 1] = part end
  for _, part in ipairs(parts) do part.cost = queue_limits.cost(part.l, cost or job.cost, costs) end
  return parts
end

-- The first time from now on, µs, at which the schedules of the queue, of the job's group and of its limits let it depart.
-- Second, the group or the limit that is closed now, '' each for another one.
local function opens(shape, groups, job, parts, now)
  local group = groups and job.group and job.group[1]
  local own, at = group and groups:bucket(group, groups:settings(group)), now
  for _ = 1, scheduled_bucket.MOST_OPENINGS do
    local before = at
    at = scheduled_bucket.opens(shape, at)
    if own then at = scheduled_bucket.opens(own, at) end
    at = now + queue_limits.open_from(parts, nil, at - now)
    if at == before then break end
  end
  if own and scheduled_bucket.opens(own, now) > now then return at, group, '' end
  local is_open, limit = scheduled_bucket.opens(shape, now) == now, ''
  for _, part in ipairs(is_open and parts or {}) do
    if limit == '' and queue_limits.open_from({ part }, nil, 0) > 0 then limit = part.l.name end
  end
  return at, '', limit
end

-- With `onClosed: 'refuse'`: of the jobs that arrive while the schedules are closed, the one for which they open last,
-- as lateness.find returns it. A job with a longer delay arrives later. closed: its group, limit: its limit, if that is
-- closed, or ''
local function find_closed(base, shape, now, jobs)
  local late = nil
  local of_queue, of_keys = shape.limits and queue_limits.open(shape, base, now) or {}, group_limits_of(base, shape, now)
  for _, job in ipairs(jobs) do
    local at, group, limit = opens(shape, jobs.groups, job, parts_of(of_queue, of_keys, job), now)
    local us = at - now - job.terms.delay * 1000
    if at > now and us > 0 and (not late or us > late.us) then late = { us = us, start = at, closed = group, limit = limit } end
  end
  if late then late.retry_ms = math.min(free_places.MAX_MS, math.ceil((late.start - now) / 1000)) end
  return late
end

-- Nil if all start in time, else the details of the latest job: {retry_ms, start (µs), max_wait, deadline (ms; nil if
-- it is met)}. A wait counts from when the job could start: for a delayed job from its due time.
function lateness.find(base, shape, now, jobs, gone)
  local closed = shape.refuses_closed and find_closed(base, shape, now, jobs)
  if closed then return closed end
  local asked = shape.max_wait_ms ~= nil
  for _, job in ipairs(jobs) do asked = asked or job.terms.deadline ~= nil end
  if not asked or redis.call('HEXISTS', base .. 'meta', 'paused') == 1 then return nil end
  local starts, late = lateness.schedule(base, shape, now), nil
  if not starts and not jobs.groups then return nil end
  local known = {}
  local function start_behind(ahead, cost)
    if not starts then return 0 end
    if ahead == 0 then return starts(0, cost) end
    known[ahead] = known[ahead] or starts(ahead, cost)
    return known[ahead]
  end
  -- The job's lateness, µs; its start; the excess over its longest wait, and over its deadline.
  local function lateness_of(job, ahead, own)
    local due, deadline = now + job.terms.delay * 1000, job.terms.deadline
    local start = math.max(due, own, start_behind(ahead, job.cost))
    local waits = shape.max_wait_ms and start - due - shape.max_wait_ms * 1000 or 0
    local misses = deadline and start - deadline * 1000 or 0
    return math.max(waits, misses), start, waits, misses
  end
  local function each(job, ahead, own)
    if own == math.huge then return end
    local us, start, waits, misses = lateness_of(job, ahead, own or 0)
    if us > 0 and (not late or us > late.us) then
      late = {
        us = us, start = start, max_wait = waits > 0 and shape.max_wait_ms,
        deadline = misses > 0 and job.terms.deadline,
      }
    end
  end
  -- Whether a job starts in time behind any number of jobs up to `most`. Only the first one starts by its own cost.
  local function in_time(job, most)
    return (lateness_of(job, 0, 0)) <= 0 and (lateness_of(job, most, 0)) <= 0
  end
  if jobs.groups then
    group_line.each_new(jobs, shape, gone, each, in_time)
  else
    jobs.ageing = ageing_open(base, shape, now)
    lateness.line(base, now, jobs, gone, each)
  end
  if late then late.retry_ms = math.min(free_places.MAX_MS, math.ceil(late.us / 1000)) end
  return late
end

return lateness
