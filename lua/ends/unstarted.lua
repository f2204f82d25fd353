local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local charged = use 'limits/charged'
local limit_control = use 'limits/control'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local job_options = use 'shape/job-options'
local shapes = use 'shape/shapes'

-- Refunds jobs that go back without having started: the downstream has not seen them. Units return only where that lets
-- no more pass than allowed: to the windows that were charged, and to buckets whose last slot the job had. Slots
-- granted after it keep their distance. A window that begins with its first unit (align 'first') must not begin with
-- such a job, because the downstream's own window begins with the next one. Places of a limit on running jobs follow
-- the lock of the job. Called before the jobs go back.
local unstarted = {}

-- Jobs are read in chunks of this size, the last granted first.
unstarted.CHUNK, unstarted.MOST = 64, 1024
-- A call reads and writes at most this many log entries, of all limits together. A charge behind more of them is not
-- given back: other calls would wait for Redis meanwhile.
unstarted.ENTRIES = 500

-- A job that was charged when it was granted, nil if it was not: {id, slot, cost, costs, group, keys, attempt,
-- members}. rules: the names of the current limits; ruled: whether it was charged under these
function unstarted.job(base, id, rules)
  local job = redis.call('HMGET', base .. id, 'departure', 'opts', 'processedOn', 'defa', 'charged', 'ats')
  local slot = tonumber(job[1]) or 0
  -- Otherwise the slot is from an earlier attempt. A job that will only be failed was not charged.
  if math.ceil(slot / 1000) ~= tonumber(job[3]) or job[4] then return nil end
  local cost, costs, _, keys = job_options.cost(job[2])
  return {
    id = id, slot = slot, cost = cost, costs = costs, group = queue_groups.named(job[2]) or '', keys = keys,
    ruled = string.match(job[5] or '', '^%S+') == rules, attempt = job[6] or '',
    members = charged.members(job[5], slot),
  }
end

-- Whether a job was certainly charged under a limit as it is now.
function unstarted.counts(l, job)
  if not job.ruled or l.mode ~= 'enforce' or not l.verbs.take_back then return false end
  return charged.under(job.slot, charged.since(l), 0)
end

-- What a running job has taken of a limit by now, nil if its start is unknown: a job that was expected to take nothing
-- was charged since.
function unstarted.taken(base, l, job)
  local cost = queue_limits.cost(l, job.cost, job.costs)
  local field = job.attempt .. ':' .. as_text.us(job.slot) .. ':' .. (l.unit or '')
  local settled = tonumber(redis.call('HGET', base .. 'meta:settled:' .. job.id, field) or nil)
  if settled and settled > 0 and cost == 0 then return nil end
  return settled or cost
end

-- The running jobs that were charged, read once for all limits and only as far as needed. Returns a function for the
-- i-th of them, or of those that a cell or a member of a pool counts; nil after the last one that is read. of_keys:
-- groups/limits-of, nil without such limits
function unstarted.running(base, rules, of_keys)
  local all, own, read, whole = {}, {}, 0, false

  local function read_more()
    local ids = redis.call('LRANGE', base .. 'active', read, read + unstarted.CHUNK - 1)
    read = read + unstarted.CHUNK
    whole = #ids < unstarted.CHUNK or read >= unstarted.MOST
    for _, id in ipairs(ids) do
      local job = unstarted.job(base, id, rules)
      if job then
        all[#all + 1] = job
        local cells = of_keys and of_keys.cells(job.group, job.keys) or {}
        for name, member in pairs(job.members or {}) do cells[#cells + 1] = name .. ':' .. member end
        for _, cell in ipairs(cells) do
          own[cell] = own[cell] or {}
          table.insert(own[cell], job)
        end
      end
    end
  end

  return function(i, cell)
    while true do
      local known = cell and own[cell] or not cell and all or {}
      if known[i] or whole then return known[i] end
      read_more()
    end
  end
end

-- The running jobs that took units of the window, each {id, slot, cost}, except those that gave them back (given): only
-- if no job is missing, else nil. Ended jobs are unknown.
function unstarted.charged(base, part, running, given)
  local found, sum, l, s, i = {}, 0, part.l, part.s, 1
  local job = running(i, part.cell or part.state)
  while job do
    if not given[job.id] and job.slot >= s.start and job.slot < s.finish and unstarted.counts(l, job) then
      local cost = unstarted.taken(base, l, job)
      if not cost then return nil end
      -- A job that takes nothing begins no window.
      if cost > 0 then found[#found + 1] = { id = job.id, slot = job.slot, cost = cost } end
      sum = sum + cost
      if sum == s.used then return found end
    end
    i = i + 1
    job = running(i, part.cell or part.state)
  end
end

-- If jobs that began the window go back, and others were charged in it later, the window begins with the first of
-- these, if all of them are known. Returns whether anything was given back.
function unstarted.leave(base, part, running, leaving, given)
  local used, opening, start = 0, 0, nil
  local found = unstarted.charged(base, part, running, given)
  for _, job in ipairs(found or {}) do
    if not leaving[job.id] then
      if not start or job.slot < start then start, opening = job.slot, 0 end
      if job.slot == start then opening = opening + job.cost end
      used = used + job.cost
    end
  end
  if not found or used == part.s.used then return false end
  part.l.verbs.begin(part.s, part.l, start or part.s.start, used, opening)
  return true
end

-- The jobs that go back and were charged when they were granted, the last slot first.
function unstarted.granted(base, rules, leaving)
  local jobs = {}
  for id in pairs(leaving) do jobs[#jobs + 1] = unstarted.job(base, id, rules) end
  table.sort(jobs, function(a, b) return a.slot > b.slot end)
  return jobs
end

-- Gives a limit the units of its jobs back. Returns whether it has.
function unstarted.refund(base, part, running, jobs, leaving, budget)
  local l, given, changed, first = part.l, {}, false, false
  for _, job in ipairs(jobs) do
    local cost = queue_limits.cost(l, job.cost, job.costs)
    if cost > 0 and unstarted.counts(l, job) then
      if l.verbs.take_back(part.s, l, cost, job.slot, budget) then
        given[job.id], changed = true, true
      else
        first = first or l.align == 'first'
      end
    end
  end
  changed = (first and unstarted.leave(base, part, running, leaving, given)) or changed
  if not changed then return false end
  l.verbs.save(part.s, l)
  if l.shared and not part.cell then limit_control.call_others(l.control, base) end
  return true
end

-- Whether a job was certainly charged at the rate that applies since `since` (µs), under the current mode and limits.
function unstarted.paid(shape, since, job)
  return charged.under(job.slot, math.max(since, shape.rules_at), tonumber(shape.id) or 0)
end

-- Refunds the buckets of groups what was charged for their last slots. Earlier slots are not refunded: others may have
-- been granted in between, and would be granted twice.
function unstarted.refund_buckets(base, shape, now, jobs)
  local g, units = queue_groups.open(base, shape, now), {}
  for _, job in ipairs(jobs) do
    local group = job.group
    if group ~= '' and job.slot == g:last_slot(group) then
      g:end_own(group)
      local since = g:in_force_since(group, g:settings(group))
      if unstarted.paid(shape, since, job) then units[group] = (units[group] or 0) + job.cost end
    end
  end
  for group, cost in pairs(units) do
    local b = g:bucket(group, g:settings(group))
    if b then
      -- The slot itself is kept: none goes before it.
      bucket.refund(b, bucket.ceil(cost * b.interval), b.last)
      g:keep_bucket(b)
      g:release(group, 'limited')
    end
  end
  g:save()
end

-- The same for the bucket of the queue. Returns how many jobs had its last slot.
function unstarted.refund_meter(base, shape, jobs)
  local m, count = shape.interval and meter.stored(base, shape), 0
  if not m then return 0 end
  for _, job in ipairs(jobs) do
    if job.slot == meter.time(m, m.last) and unstarted.paid(shape, shape.changed_at, job) then
      bucket.refund(m, bucket.ceil(job.cost * m.interval), m.last)
      count = count + 1
    end
  end
  if count > 0 then meter.store(base .. 'meta:meter', m) end
  return count
end

-- Those of the jobs that departed with the member of a pool; all of them for other limits.
function unstarted.of_member(jobs, part)
  if not part.member then return jobs end
  local found = {}
  for _, job in ipairs(jobs) do
    if job.members and job.members[part.l.name] == part.member then found[#found + 1] = job end
  end
  return found
end

-- Gives limits their units back.
function unstarted.refund_limits(base, shape, now, rules, jobs, leaving)
  local own = group_limits_of(base, shape, now)
  local running, budget = unstarted.running(base, rules, own), { entries = unstarted.ENTRIES }
  for _, part in ipairs(shape.limits and queue_limits.open(shape, base, now) or {}) do
    for _, one in ipairs(queue_limits.states(part)) do
      unstarted.refund(base, one, running, unstarted.of_member(jobs, one), leaving, budget)
    end
  end
  if not own then return end
  local parts, members, g = {}, {}, queue_groups.open(base, shape, now)
  for _, job in ipairs(jobs) do
    for _, part in ipairs(own.open(job.group, job.keys)) do
      local cell = part.cell
      if not members[cell] then parts[#parts + 1], members[cell] = part, { group = job.group } end
      table.insert(members[cell], job)
    end
  end
  for _, part in ipairs(parts) do
    local of_cell = members[part.cell]
    if unstarted.refund(base, part, running, of_cell, leaving, budget) then g:cell_freed(part.cell, of_cell.group, part.shared) end
  end
  g:save()
end

-- leaving: the ids of the jobs that go back, each true. Returns the shape and the jobs, for unstarted.refund_meter; nil
-- if nothing was charged.
function unstarted.give_back(base, leaving)
  local key = base .. 'meta:shape'
  local f = redis.call('HMGET', key, 'limits', 'groups', 'interval')
  if not (f[1] or f[2] or f[3]) or next(leaving) == nil then return nil end
  local now = redis_now()
  local shape = shapes.load(key, base, now)
  if not (shape and shape.mode == 'enforce') then return nil end
  local rules = charged.rules(shape)
  local jobs = unstarted.granted(base, rules, leaving)
  if shape.limits or shape.keyed_limits then unstarted.refund_limits(base, shape, now, rules, jobs, leaving) end
  if shape.groups then unstarted.refund_buckets(base, shape, now, jobs) end
  return shape, jobs
end

return unstarted
