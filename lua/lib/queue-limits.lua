--- @include "limits"
--- @include "limit-place"
--- @include "limit-horizon"

-- The limits of a shape that departures have to meet beside its rate: all of them, or the job waits. The shape holds them
-- as src/limits/queue-limits.ts writes them:
--   name, unit            what a job costs of it: its costs[unit], 1 where it does not say; without a unit its cost
--   shared, prefix        whether every queue and limiter of that name shares it, and under which prefix
--   key                   whose state it is
--   state                 the end of the key that holds it
--   definition, version   of a shared one: what its users have to agree on, JSON
-- and what it allows, as lib/limit-state has it.

-- The limits of a shape, each with its state. They are charged in memory, and stored by queue_limits_save.
local function queue_limits_open(shape, base, now)
  local parts = {}
  for i, l in ipairs(cjson.decode(shape.limits)) do
    limit_prepare(l, queue_limit_control(l, base), now, true)
    local key = l.control .. l.state
    parts[i] = { l = l, offset = 0, blocked = limit_blocked(l, key, now), s = l.verbs.open(key, l, now) }
  end
  return parts
end

-- What a job takes of a limit. Places are whole, and never more than there are.
local function queue_limit_cost(l, cost, costs)
  local asked = not l.unit and cost or costs and tonumber(costs[l.unit]) or 1
  if l.algorithm ~= 'concurrency' then return asked end
  return math.min(l.limit, math.ceil(asked))
end

-- When a job conforms to all of them: µs from now, not rounded; then, whether that is only an estimate: a place that is
-- taken may be free by then, or be kept for longer; then the name of the limit that it waits for.
local function queue_limits_wait(parts, cost, costs)
  local wait, estimated, name = 0, false, nil
  for _, part in ipairs(parts) do
    local l = part.l
    part.cost = queue_limit_cost(l, cost, costs)
    -- What takes nothing of a limit does not wait for it.
    local free = part.cost == 0
    part.offset = (free or l.mode == 'off') and 0 or l.verbs.earliest(part.s, l, part.cost + l.kept)
    local own = free and 0 or limit_wait(part)
    if own > wait then wait, name = own, l.name end
    if l.algorithm == 'concurrency' and l.mode == 'enforce' and part.offset > 0 then estimated = true end
  end
  return wait, estimated, name
end

-- Charges what queue_limits_wait was asked for, for a time that is not before its answer.
local function queue_limits_charge(parts, offset, job_key)
  for _, part in ipairs(parts) do
    local l = part.l
    part.s.lease = job_key
    if l.mode ~= 'off' and part.cost > 0 and part.offset <= offset then
      l.verbs.charge(part.s, l, part.cost, offset)
      part.charged, part.ahead = true, part.ahead or offset > 0
    end
  end
end

-- Where places are left, they are for others that share the limit; other workers of the queue sleep until their slots.
local function queue_limit_pass_on(part, base)
  if part.l.algorithm ~= 'concurrency' or part.s.used >= part.l.limit then return end
  if part.l.shared then queue_limit_call_others(part.l.control, base) end
end

-- A queue that waits for a shared limit is called when that is changed or has a place. horizon: µs, of the worker itself;
-- nil where no other queue can share the limits
local function queue_limits_save(parts, base, closed, horizon)
  for _, part in ipairs(parts) do
    local l = part.l
    if part.charged then l.verbs.save(part.s, l) end
    if part.ahead and horizon then limit_horizon.note(l, horizon, part.s.now) end
    if closed and part.offset > 0 then
      if l.shared then redis.call('SADD', queue_limit_waiting(l.control), base) end
    else
      queue_limit_pass_on(part, base)
    end
  end
end
