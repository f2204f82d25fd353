local wake = use 'gate/wake'
local limit_checks = use 'limits/checks'
local limit_control = use 'limits/control'
local limit_pool = use 'limits/pool'
local scheduled_bucket = use 'limits/scheduled-bucket'
local limit_state = use 'limits/state'
local meter = use 'meter/meter'
local keep_key = use 'redis/keep-key'
local parsed = use 'shape/parsed'

-- The limits of a shape that departures must meet besides its rate: all of them, or the job waits. The shape stores
-- them as src/limits/queue-limits.ts writes them:
--   name, unit            a job's cost in it: its costs[unit], 1 by default; without a unit its cost
--   shared, prefix        whether all queues and limiters share it by that name, and under which prefix
--   key                   the key of its state
--   pool                  its members, each with a state of its own (limits/pool); sticky: whether groups keep theirs
--   clamp                 whether a job that costs more than the limit allows at once takes that much
--   state                 the end of the Redis key that holds it
--   definition, version   for a shared one: what its users must agree on, JSON
-- and its allowance, as in limits/state.
-- How far ahead queues that share a limit are granted slots: a charge for a slot ahead lets nothing else pass before
-- that slot. If a queue's own rate spaces out its jobs, and it is granted further ahead than another queue, the latter
-- would never find a slot. So all of them grant as far ahead as the one with the largest horizon, but no worker holds a
-- job for longer than its lock allows. The horizon is stored in the limit's switch: a grant ahead writes it if it is
-- larger, or if half of its lifetime has passed.
local queue_limits = {
  -- Horizons derived from a round trip differ from call to call: they are stored in steps of this many µs.
  STEP_US = 10000,
  -- The maximum share of a lock's life for which a worker holds a job, as in src/worker/dispatcher.ts.
  LOCK_LIFE_HELD = 1 / 4,
  -- A worker with a larger horizon goes to sleep as if its horizon were this.
  MOST_SPAN_US = 50000,
}

-- Whether it is a limit on running jobs of the queue as a whole.
local function has_places(l)
  return l.algorithm == 'concurrency' and not l.by
end

-- The part of one member of a pool, by its name (`member` of keys); nil if there is none.
function queue_limits.member(shape, base, now, name, keys)
  for _, part in ipairs(shape.pools and queue_limits.open(shape, base, now) or {}) do
    for _, one in ipairs(part.l.pool and part.l.name == name and queue_limits.states(part) or {}) do
      if one.member == keys.member then return one end
    end
  end
end

-- Prepares a limit of a shape. Returns the key of its state or, for a pool, the common beginning of its members' keys.
function queue_limits.prepare(l, shape, base, now)
  limit_state.lasting(l, shape.follows)
  if not l.pool then
    limit_checks.prepare(l, limit_control.of_queue(l, base), now, true)
    return l.control .. l.state
  end
  -- It has no switch.
  limit_checks.prepare(l, limit_control.of_queue(l, base), now, true, false)
  l.member = setmetatable({ verbs = l.verbs, pool = false, of_pool = l }, { __index = l })
  l.verbs = limit_pool
  l.own, l.base = shape.own_limits and shape.own_limits[l.name], base
  l.ends = not shape.groups and shape.own_limits or nil
  return limit_control.states_of_values(l, base)
end

-- The limits of a shape, each with its state. They are charged in memory, and stored by queue_limits.save.
function queue_limits.open(shape, base, now)
  local parts = {}
  for i, l in ipairs(cjson.decode(shape.limits)) do
    local key = queue_limits.prepare(l, shape, base, now)
    local s = l.verbs.open(key, l, now)
    parts[i] = { l = l, offset = 0, blocked = l.pool and s.held or limit_checks.blocked(l, key, now), s = s }
  end
  return parts
end

-- The states of a limit, as parts: for a pool, those of its members.
function queue_limits.states(part)
  return part.l.pool and part.l.verbs.parts(part) or { part }
end

-- A copy of a state: further charges on it are not stored.
function queue_limits.planned(l, s)
  if l.pool then return l.verbs.copy(s, queue_limits.planned) end
  local copy = {}
  for field, value in pairs(s) do copy[field] = value end
  copy.planned = {}
  return copy
end

-- A job's cost under a limit. Places are whole, and never more than the limit has.
function queue_limits.cost(l, cost, costs)
  l = l.of_pool or l
  local asked = not l.unit and cost or costs and tonumber(costs[l.unit]) or 1
  if l.algorithm ~= 'concurrency' then return l.clamp and math.min(asked, l.burst or l.limit) or asked end
  return math.min(l.limit, math.ceil(asked))
end

-- A loop of numbers takes Redis less than one of ipairs, and each departure has several over its limits.

-- When a job conforms to all of them: µs from now, not rounded; second, whether that is only an estimate: a taken place
-- may be free by then, or be kept for longer; third, the name of the limit that it waits for.
function queue_limits.wait(parts, cost, costs)
  local wait, estimated, name = 0, false, nil
  for i = 1, #parts do
    local part = parts[i]
    local l = part.l
    part.cost = queue_limits.cost(l, cost, costs)
    -- A job that takes nothing of a limit does not wait for it.
    local free = part.cost == 0
    -- A pool without its limit has members to choose from.
    part.offset = (free or l.mode == 'off' and not l.pool) and 0 or l.verbs.earliest(part.s, l, part.cost + l.kept)
    local own = free and 0 or limit_checks.wait(part)
    if own > wait then wait, name = own, l.name end
    if l.algorithm == 'concurrency' and l.mode == 'enforce' and part.offset > 0 then estimated = true end
  end
  return wait, estimated, name
end

-- Whether the last job waits for a limit, or one that it let pass.
local function is_awaited(part)
  return part.awaited or limit_checks.wait(part) > 0
end

-- When a member of a pool that the last job waits for gets another limit, by the end of its settings, µs; infinite if
-- none does.
function queue_limits.next_end(parts)
  local first = math.huge
  for _, part in ipairs(parts or {}) do
    if part.l.pool and is_awaited(part) then first = math.min(first, part.s.ends) end
  end
  return first
end

-- The first time from `at` on, µs, when the schedule of a limit lets the last job pass.
local function opens(part, at)
  if part.l.pool then return limit_pool.opens(part.s, at) end
  return scheduled_bucket.opens(part.l, at)
end

-- While a limit is closed, as scheduled_bucket.closed has it; else nil.
function queue_limits.closed(part)
  if part.l.pool then return limit_pool.closed(part.s) end
  return scheduled_bucket.closed(part.l, part.s.now)
end

-- The first time after `offset`, µs from now, at which the rate (m, as meter/meter, or nil) and the limits of the last
-- queue_limits.wait are all above 0, as far as they follow the clock.
function queue_limits.open_from(parts, m, offset)
  for _ = 1, scheduled_bucket.MOST_OPENINGS do
    local before = offset
    if m then offset = meter.open_from(m, offset) end
    for i = 1, #parts do
      local part = parts[i]
      local l = part.l
      if (l.service or l.pool) and l.mode == 'enforce' and part.cost > 0 then
        local at = part.s.now + math.ceil(offset)
        local from = opens(part, at)
        if from > at then offset = from - part.s.now end
      end
    end
    if offset == before then break end
  end
  return offset
end

-- Jobs of this group depart, nil for none: their pools may keep their members.
function queue_limits.serve(parts, group)
  for _, part in ipairs(parts) do
    if part.l.sticky then part.s.group = group ~= '' and group or nil end
  end
end

-- Charges the costs last passed to queue_limits.wait, for a time not before its result. lock_ms: as in
-- limits/concurrency
function queue_limits.charge(parts, offset, job_key, lock_ms)
  for i = 1, #parts do
    local part = parts[i]
    local l = part.l
    if l.algorithm == 'concurrency' then part.s.lease, part.s.lock_ms = job_key, lock_ms end
    if l.mode ~= 'off' and part.cost > 0 and part.offset <= offset then
      l.verbs.charge(part.s, l, part.cost, offset)
      part.charged = true
      if offset > 0 then part.ahead = true end
    elseif l.pool and part.cost > 0 then
      l.verbs.choose(part.s, offset)
      part.charged = true
    end
    part.member = l.pool and part.cost > 0 and part.s.member or nil
  end
end

-- The members with which the job charged last departs, JSON: name of the limit -> name of the member; nil if it has
-- none.
function queue_limits.members(parts)
  local members
  for _, part in ipairs(parts) do
    if part.member then
      members = members or {}
      members[part.l.name] = part.member.name
    end
  end
  return members and cjson.encode(members)
end

-- Places are taken at the time of a grant, not of its slot.
local function horizon_matters(l)
  return l.shared and l.mode == 'enforce' and l.algorithm ~= 'concurrency'
end

-- The stored horizon, µs; 0 for none. A time in the future comes from a clock that went back.
local function known_horizon(l, now)
  local since = now - l.horizon_at
  return since >= 0 and since <= limit_control.HORIZON_MEMORY_US and l.horizon or 0
end

-- How far ahead a worker is granted slots, µs; second, the horizon that it uses when it goes to sleep. own: its own
-- horizon; 0 for one that starts jobs at once. lock_ms: how long its locks last. Under a shared limit, the first worker
-- to ask gets the slots: one that waited for half a large horizon of them would leave them to others, or lose them if
-- others are granted later ones.
function queue_limits.reach(parts, own, lock_ms, now)
  local most, reach, span = lock_ms * 1000 * queue_limits.LOCK_LIFE_HELD, own, own
  if own == 0 then return own, span end
  for _, part in ipairs(parts) do
    if horizon_matters(part.l) then
      span = math.min(span, queue_limits.MOST_SPAN_US)
      reach = math.max(reach, math.min(most, known_horizon(part.l, now)))
    end
  end
  return reach, span
end

-- Records that a worker with that horizon was granted something ahead.
local function note_horizon(l, own, now)
  if not horizon_matters(l) then return end
  local horizon, known = math.ceil(own / queue_limits.STEP_US) * queue_limits.STEP_US, known_horizon(l, now)
  if horizon > known or (horizon == known and now - l.horizon_at > limit_control.HORIZON_MEMORY_US / 2) then
    limit_control.write(l.control, { horizon = horizon, horizon_at = now })
  end
end

-- A queue that waits for a shared limit is woken when the limit changes or has a place. horizon: µs, of the worker
-- itself; nil if no other queue can share the limits
function queue_limits.save(parts, base, closed, horizon)
  for i = 1, #parts do
    local part = parts[i]
    local l = part.l
    if part.charged then l.verbs.save(part.s, l) end
    if part.ahead and horizon then note_horizon(l, horizon, part.s.now) end
    if closed and is_awaited(part) then
      if l.shared then redis.call('SADD', limit_control.waiting(l.control), base) end
    elseif l.shared and has_places(l) and part.s.used < l.limit then
      -- Remaining places go to others; other workers of the queue sleep until their slots.
      limit_control.call_others(l.control, base)
    end
  end
end

-- Whether the queue as a whole has limits on running jobs. limits: JSON, in which those with `by` come last
function queue_limits.are_limited(limits)
  local at = limits and string.find(limits, '"algorithm":"concurrency"', 1, true)
  return at and at < (string.find(limits, parsed.KEYED_LIMIT, 1, true) or math.huge)
end

-- A job has ended, and its queue does not need its place. limits: JSON
function queue_limits.free_others(base, limits)
  if not queue_limits.are_limited(limits) then return end
  for _, l in ipairs(cjson.decode(limits)) do
    if l.shared and has_places(l) then limit_control.call_others(limit_control.of_queue(l, base), base) end
  end
end

-- A job has ended: one that waits for its place may start, here or in a queue that shares the limit.
function queue_limits.freed(base, limits)
  if not queue_limits.are_limited(limits) then return end
  wake.sleeper(base)
  queue_limits.free_others(base, limits)
end

-- Keeps the places of running jobs (limits/concurrency) while their locks are extended. lock_ms: how long these last
-- from now on
function queue_limits.keep_places(base, ids, lock_ms)
  local limits = redis.call('HGET', base .. 'meta:shape', 'limits')
  if not (limits and parsed.has_places(limits)) then return end
  local kept = {}
  for _, l in ipairs(queue_limits.are_limited(limits) and cjson.decode(limits) or {}) do
    if has_places(l) and not l.pool then kept[limit_control.of_queue(l, base) .. l.state] = true end
    for _, member in ipairs(has_places(l) and l.pool or {}) do
      kept[limit_control.states_of_values(l, base) .. member] = true
    end
  end
  -- Places of limits with keys are recorded with each job (groups/places).
  for i = 1, #ids, 1000 do
    local part = { unpack(ids, i, math.min(#ids, i + 999)) }
    for _, packed in ipairs(redis.call('HMGET', base .. 'meta:lanes:places', unpack(part))) do
      for _, place in ipairs(packed and cmsgpack.unpack(packed) or {}) do kept[place.key] = true end
    end
  end
  for key in pairs(kept) do keep_key(key, lock_ms + 1000) end
end

return queue_limits
