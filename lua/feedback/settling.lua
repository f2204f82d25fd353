local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local charged = use 'limits/charged'
local limit_control = use 'limits/control'
local queue_limits = use 'limits/queue-limits'
local limit_state = use 'limits/state'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local audit = use 'reports/audit'
local job_options = use 'shape/job-options'

-- Corrects a job's charge after its departure, once its cost is known: under the rate of its queue and that of its
-- group, and the limits of both. A higher cost is charged now. A lower cost is refunded as far as it has not been
-- refilled by itself, counted from the last granted slot: jobs that were granted ahead rely on the refill until then.
-- How much that is follows from the rate since the departure, so nothing is refunded to a job that departed before a
-- change of the rate. Shares of groups count expected costs.
local settling = {}

-- Nil if the job is gone: its charge is then unknown.
function settling.open(base, shape, now, id)
  local job = redis.call('HMGET', base .. id, 'opts', 'departure', 'processedOn', 'ats')
  if not job[1] then return nil end
  local c = { base = base, shape = shape, now = now, id = id, corrected = 0 }
  local slot, started_ms = tonumber(job[2]), tonumber(job[3]) or 0
  -- When it was charged, not later: whole ms if nothing more exact was stored for its last start.
  c.since = slot and math.ceil(slot / 1000) == started_ms and slot or (started_ms - 1) * 1000
  local cost, costs, _, keys = job_options.cost(job[1])
  c.attempt, c.cost, c.costs = job[4], cost, costs
  -- How the charges changed, in units: of the rate, of that of its group, and by name of the limits of both.
  c.changed = { 0, 0, {}, {} }
  c.limits = shape.limits and queue_limits.open(shape, base, now) or {}
  if shape.pools then settling.find_members(c, charged.members(redis.call('HGET', base .. id, 'charged'), slot)) end
  local own = group_limits_of(base, shape, now)
  if shape.groups then c.group, c.g = queue_groups.named(job[1]) or '', queue_groups.open(base, shape, now) end
  for _, part in ipairs(own and own.open(c.group, keys) or {}) do c.limits[#c.limits + 1] = part end
  return c
end

-- A pool is charged as the member with which the job departed; as a whole, it has no state.
function settling.find_members(c, members)
  for i, part in ipairs(c.limits) do
    for _, one in ipairs(part.l.pool and queue_limits.states(part) or {}) do
      if members and members[part.l.name] == one.member then c.limits[i] = one end
    end
  end
end

-- A unit that no limit counts, nil if there is none. '' is the unit of the rate.
function settling.unknown(c, actuals)
  for unit in pairs(actuals) do
    local known = unit == ''
    for _, part in ipairs(c.limits) do known = known or part.l.unit == unit end
    if not known then return unit end
  end
end

-- The outstanding charge in a unit; a negative one is refunded. Second, the expected cost of the job, the first time.
-- kept_ms: how long that is remembered. A job that the downstream refused runs again with the number of its attempt,
-- and is charged again.
function settling.outstanding(c, attempt, unit, actual, kept_ms)
  local memory, field = c.base .. 'meta:settled:' .. c.id, attempt .. ':' .. as_text.us(c.since) .. ':' .. unit
  local expected = unit == '' and c.cost or c.costs and c.costs[unit] or 1
  local before = tonumber(redis.call('HGET', memory, field) or nil)
  redis.call('HSET', memory, field, as_text.exact(actual))
  redis.call('PEXPIRE', memory, kept_ms)
  return actual - (before or expected), not before and expected or nil
end

-- Whether the job was charged under the current rules, which apply since `at` (µs).
function settling.under(c, at)
  return charged.under(c.since, at, tonumber(c.shape.id) or 0)
end

-- How far a correction moves TAT, µs. last: of the last granted slot, µs
function settling.moves(c, change, interval, last, at)
  if change > 0 then return bucket.ceil(change * interval) end
  if not settling.under(c, at) then return 0 end
  local back = -change - math.max(0, math.max(c.now, last) - c.since) / interval
  return -math.floor(math.max(0, back) * interval * 1024) / 1024
end

-- by: negative if something was refunded, so that jobs may depart sooner
function settling.count(c, by)
  c.corrected, c.gave = c.corrected + 1, c.gave or by < 0
end

function settling.move(b, now, by)
  b.tat = (by > 0 and math.max(b.tat, now) or b.tat) + by
end

function settling.meter(c, change)
  local shape, key = c.shape, c.base .. 'meta:meter'
  if not shape.interval then return end
  local m = meter.open(key, c.now, shape, '')
  local at = math.max(shape.changed_at, shape.rules_at)
  local by = settling.moves(c, change, m.interval, meter.time(m, m.last), at)
  -- Each save is a new state of the meter: a job that goes back could not tell that its slot is still the last one.
  if by == 0 then return end
  settling.move(m, m.now, by)
  -- As meter/meter charges in shadow mode.
  if shape.mode == 'shadow' then m.tat = math.min(m.tat, m.now + m.burst * m.interval) end
  meter.save(key, m)
  c.changed[1] = by / m.interval
  settling.count(c, by)
end

function settling.group(c, change)
  local g, group = c.g, c.group
  if not g or group == '' or not g.enforced then return end
  g:end_own(group)
  local s = g:settings(group)
  local b = g:bucket(group, s)
  if not b then return end
  local at = math.max(g:in_force_since(group, s), c.shape.rules_at)
  local by = settling.moves(c, change, b.interval, meter.time(b, b.last), at)
  c.reached = true
  if by == 0 then return end
  settling.move(b, meter.at(b, c.now), by)
  g:keep_bucket(b)
  c.changed[2] = by / b.interval
  settling.count(c, by)
end

-- expected: as settling.outstanding returns it
function settling.limit(c, part, change, expected)
  local l, s = part.l, part.s
  -- If the cost was clamped, the rest is charged now.
  if l.clamp and expected then change = change + expected - queue_limits.cost(l, c.cost, c.costs) end
  if change == 0 then return end
  -- In shadow mode it may not have been charged.
  if not l.verbs.adjust or l.mode ~= 'enforce' then return end
  if change < 0 and c.shape.mode ~= 'enforce' then return end
  c.reached = true
  if change < 0 then
    local at = math.max(c.shape.rules_at, charged.since(l))
    -- A limit per group has one state for all jobs while there are no groups.
    if l.by then at = math.max(at, c.shape.groups_at) end
    change = settling.under(c, at) and -limit_state.credit(l, s, -change, c.since) or 0
  end
  if change == 0 then return end
  limit_state.settle(l, s, change)
  c.changed[l.by and 4 or 3][l.name] = as_text.exact(change)
  if change < 0 and l.shared and not part.cell then limit_control.call_others(l.control, c.base) end
  if change < 0 and part.cell then c.g:cell_freed(part.cell, c.group, part.shared) end
  settling.count(c, change)
end

-- Corrects the charge in a unit.
function settling.correct(c, unit, change, expected)
  if unit == '' and change ~= 0 then
    settling.meter(c, change)
    settling.group(c, change)
  end
  for _, part in ipairs(c.limits) do
    if (part.l.unit or '') == unit then settling.limit(c, part, change, expected) end
  end
end

-- Checks its group again: it may go sooner. Returns how many buckets and limits were corrected, and whether something
-- was refunded.
function settling.close(c)
  if c.g then
    if c.reached or c.gave then c.g:release(c.group, 'limited') end
    c.g:save()
  end
  if c.shape.audit and c.corrected > 0 then
    local rate, group, limits, of_group = unpack(c.changed)
    audit.settled(c.base, {
      c.id, as_text.us(c.since), as_text.exact(rate), as_text.exact(group), next(limits) and limits or 0,
      next(of_group) and of_group or 0, as_text.us(c.now),
    })
  end
  return c.corrected, c.gave
end

return settling
