local limit_checks = use 'limits/checks'
local limit_horizon = use 'limits/horizon'
local queue_limit_control = use 'limits/queue-limit-control'
local queue_places = use 'limits/queue-places'

-- The limits of a shape that departures must meet besides its rate: all of them, or the job waits. The shape stores
-- them as src/limits/queue-limits.ts writes them:
--   name, unit            a job's cost in it: its costs[unit], 1 by default; without a unit its cost
--   shared, prefix        whether all queues and limiters share it by that name, and under which prefix
--   key                   the key whose state it is
--   state                 the end of the Redis key that holds it
--   definition, version   for a shared one: what its users must agree on, JSON
-- and its allowance, as in limits/state.

local queue_limits = {}

-- The limits of a shape, each with its state. They are charged in memory, and stored by queue_limits.save.
function queue_limits.open(shape, base, now)
  local parts = {}
  for i, l in ipairs(cjson.decode(shape.limits)) do
    limit_checks.prepare(l, queue_limit_control(l, base), now, true)
    local key = l.control .. l.state
    parts[i] = { l = l, offset = 0, blocked = limit_checks.blocked(l, key, now), s = l.verbs.open(key, l, now) }
  end
  return parts
end

-- A job's cost under a limit. Places are whole, and never more than the limit has.
function queue_limits.cost(l, cost, costs)
  local asked = not l.unit and cost or costs and tonumber(costs[l.unit]) or 1
  if l.algorithm ~= 'concurrency' then return asked end
  return math.min(l.limit, math.ceil(asked))
end

-- When a job conforms to all of them: µs from now, not rounded; second, whether that is only an estimate: a place that
-- is taken may be free by then, or be kept for longer; third, the name of the limit that it waits for.
function queue_limits.wait(parts, cost, costs)
  local wait, estimated, name = 0, false, nil
  for _, part in ipairs(parts) do
    local l = part.l
    part.cost = queue_limits.cost(l, cost, costs)
    -- A job that takes nothing of a limit does not wait for it.
    local free = part.cost == 0
    part.offset = (free or l.mode == 'off') and 0 or l.verbs.earliest(part.s, l, part.cost + l.kept)
    local own = free and 0 or limit_checks.wait(part)
    if own > wait then wait, name = own, l.name end
    if l.algorithm == 'concurrency' and l.mode == 'enforce' and part.offset > 0 then estimated = true end
  end
  return wait, estimated, name
end

-- Charges the costs last passed to queue_limits.wait, for a time not before its result. lock_ms: as in
-- limits/concurrency
function queue_limits.charge(parts, offset, job_key, lock_ms)
  for _, part in ipairs(parts) do
    local l = part.l
    part.s.lease, part.s.lock_ms = job_key, lock_ms
    if l.mode ~= 'off' and part.cost > 0 and part.offset <= offset then
      l.verbs.charge(part.s, l, part.cost, offset)
      part.charged, part.ahead = true, part.ahead or offset > 0
    end
  end
end

-- Remaining places go to others that share the limit; other workers of the queue sleep until their slots.
local function queue_limit_pass_on(part, base)
  if part.l.algorithm ~= 'concurrency' or part.s.used >= part.l.limit then return end
  if part.l.shared then queue_places.call_others(part.l.control, base) end
end

-- A queue that waits for a shared limit is woken when the limit changes or has a place. horizon: µs, of the worker
-- itself; nil if no other queue can share the limits
function queue_limits.save(parts, base, closed, horizon)
  for _, part in ipairs(parts) do
    local l = part.l
    if part.charged then l.verbs.save(part.s, l) end
    if part.ahead and horizon then limit_horizon.note(l, horizon, part.s.now) end
    if closed and (part.awaited or limit_checks.wait(part) > 0) then
      if l.shared then redis.call('SADD', queue_places.waiting(l.control), base) end
    else
      queue_limit_pass_on(part, base)
    end
  end
end

return queue_limits
