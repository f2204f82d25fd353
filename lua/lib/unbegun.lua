--- @include "clock"
--- @include "shape"
--- @include "job"
--- @include "group-limits"

-- The downstream has not seen a job that goes back without having started. A window that begins with its first unit
-- (align 'first') must not begin with such a job: the downstream's own window begins with the next one. The other fixed
-- windows of groups get its units back, or some late returns would use up the day of a tenant, and so does the bucket of
-- its group, if no slot was granted behind it. Of other limits the units come back by themselves, and slots that were
-- granted behind it keep their distance. Called before the jobs go back.
-- One table: a script has no room for more than 200 local names.
local unbegun = {}

-- Jobs are read in chunks of this size, the last granted first.
unbegun.CHUNK, unbegun.MOST = 64, 1024
-- Slots that lie this close behind a change of the limits, µs, may have been granted before it.
unbegun.AHEAD_US = 60000000

-- The running jobs whose slots lie in the window, each with its slot and cost: only if no job is missing, else nil.
-- Jobs that have ended are no longer known.
function unbegun.charged(base, part)
  local found, sum, l, s = {}, 0, part.l, part.s
  for from = 0, unbegun.MOST - 1, unbegun.CHUNK do
    local ids = redis.call('LRANGE', base .. 'active', from, from + unbegun.CHUNK - 1)
    for _, id in ipairs(ids) do
      local job = redis.call('HMGET', base .. id, 'departure', 'opts', 'ats')
      local slot = tonumber(job[1])
      local counts = not part.group or (groups_library().named(job[2]) or '') == part.group
      if counts and slot and slot >= s.start and slot < s.finish then
        local cost, costs = cost_of_options(job[2])
        local field = (job[3] or '') .. ':' .. job[1] .. ':' .. (l.unit or '')
        local settled = redis.call('HGET', base .. 'meta:settled:' .. id, field)
        found[#found + 1] = { id = id, slot = slot, cost = tonumber(settled) or queue_limit_cost(l, cost, costs) }
        sum = sum + found[#found].cost
        if sum == s.used then return found end
      end
    end
    if #ids < unbegun.CHUNK then return nil end
  end
end

function unbegun.leave(base, part, leaving)
  local used, start = 0, nil
  local found = unbegun.charged(base, part)
  for _, job in ipairs(found or {}) do
    if not leaving[job.id] then
      used, start = used + job.cost, math.min(start or job.slot, job.slot)
    end
  end
  if not found or used == part.s.used then return end
  part.l.verbs.begin(part.s, part.l, start or part.s.start, used)
  unbegun.keep(base, part)
end

function unbegun.keep(base, part)
  part.l.verbs.save(part.s, part.l)
  if not part.group then return end
  local g = groups_library().bare(base)
  g:release(part.group, 'limited')
  g:save()
end

-- The jobs that go back and were charged when they were granted: {slot, cost, costs, group} each.
function unbegun.granted(base, leaving)
  local jobs = {}
  for id in pairs(leaving) do
    local job = redis.call('HMGET', base .. id, 'departure', 'opts', 'processedOn', 'defa')
    local slot = tonumber(job[1]) or 0
    -- Otherwise the slot is that of an attempt before. One that will only be failed was not charged.
    if math.ceil(slot / 1000) == tonumber(job[3]) and not job[4] then
      local cost, costs = cost_of_options(job[2])
      jobs[#jobs + 1] = { slot = slot, cost = cost, costs = costs, group = groups_library().named(job[2]) or '' }
    end
  end
  return jobs
end

-- Gives a window of a group the units of its jobs back, unless another one has begun since.
function unbegun.refund(base, part, jobs)
  local units, l, s = 0, part.l, part.s
  local since = tonumber(redis.call('HGET', base .. 'meta:groups', 'since') or nil) or math.huge
  for _, job in ipairs(jobs) do
    local counts = job.slot >= s.start and job.slot < s.finish and job.slot > since + unbegun.AHEAD_US
    if counts and job.group == part.group then units = units + queue_limit_cost(l, job.cost, job.costs) end
  end
  if units == 0 then return end
  l.verbs.adjust(s, l, -units)
  unbegun.keep(base, part)
end

-- Gives the buckets of groups back what was charged for their last slots. Before these, others may have been granted in
-- between: those would be granted twice.
function unbegun.refund_buckets(base, shape, now, jobs)
  local g, units = groups_library().open(base, shape, now), {}
  for _, job in ipairs(jobs) do
    local group = job.group
    if group ~= '' and job.slot == g:last_slot(group) then units[group] = (units[group] or 0) + job.cost end
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

-- Adds the limits of the groups of these jobs. limits: as in lib/group-limits, or nil
function unbegun.add_groups(parts, limits, jobs)
  local seen = {}
  for _, job in ipairs(limits and jobs or {}) do
    for _, part in ipairs(not seen[job.group] and limits.open(job.group) or {}) do parts[#parts + 1] = part end
    seen[job.group] = true
  end
end

-- leaving: the ids of the jobs that go back, each true
function unbegun.leave_windows(base, shape, now, leaving, jobs)
  local parts = shape.limits and queue_limits_open(shape, base, now) or {}
  unbegun.add_groups(parts, group_limits_of(base, shape, now), jobs)
  for _, part in ipairs(parts) do
    if part.l.mode ~= 'enforce' or part.l.algorithm ~= 'fixed-window' then
    elseif part.l.align == 'first' then
      unbegun.leave(base, part, leaving)
    elseif part.group then
      unbegun.refund(base, part, jobs)
    end
  end
end

-- leaving: as above
function unbegun.give_back(base, leaving)
  local f = redis.call('HMGET', base .. 'meta:shape', 'limits', 'groups')
  local limits = f[1] or ''
  local windows = string.find(limits, '"align":"first"', 1, true)
    or (string.find(limits, '"per":"group"', 1, true) and string.find(limits, '"fixed-window"', 1, true))
  if not (windows or f[2]) or next(leaving) == nil then return end
  local now = redis_now()
  local shape = shape_load(base .. 'meta:shape', base, now)
  if not (shape and shape.mode == 'enforce') then return end
  local jobs = unbegun.granted(base, leaving)
  if windows then unbegun.leave_windows(base, shape, now, leaving, jobs) end
  if shape.groups then unbegun.refund_buckets(base, shape, now, jobs) end
end
