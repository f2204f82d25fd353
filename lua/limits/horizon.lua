local limit_switch = use 'limits/switch'

-- How far ahead queues that share a limit are granted slots. A charge for a slot ahead lets nothing else pass before
-- that slot: if a queue's own rate spaces out its jobs, and it is granted further ahead than another queue, the latter
-- would never find a slot. So all of them grant as far ahead as the one with the largest horizon, but no worker holds a
-- job for longer than its lock allows. The horizon is stored in the limit's switch: a grant ahead writes it if it is
-- larger, or if half of its lifetime has passed.

local limit_horizon = {}

-- Horizons derived from a round trip differ from call to call: they are stored in steps of this many µs.
limit_horizon.STEP_US = 10000
-- The maximum share of a lock's life for which a worker holds a job, as in src/worker/dispatcher.ts.
limit_horizon.LOCK_LIFE_HELD = 1 / 4

-- A worker with a larger horizon goes to sleep as if its horizon were this.
limit_horizon.MOST_SPAN_US = 50000

-- Places are taken at the time of a grant, not of its slot.
function limit_horizon.matters(l)
  return l.shared and l.mode == 'enforce' and l.algorithm ~= 'concurrency'
end

-- The stored horizon, µs; 0 for none. A time in the future comes from a clock that went back.
function limit_horizon.known(l, now)
  local since = now - l.horizon_at
  return since >= 0 and since <= limit_switch.HORIZON_MEMORY_US and l.horizon or 0
end

-- How far ahead a worker is granted slots, µs; second, the horizon that it uses when it goes to sleep. own: its own
-- horizon; 0 for one that starts jobs at once. lock_ms: how long its locks last
-- Under a shared limit, the first worker to ask gets the slots: one that waited for half a large horizon of them would
-- leave them to others, or lose them if others are granted later ones.
function limit_horizon.reach(parts, own, lock_ms, now)
  local most, reach, span = lock_ms * 1000 * limit_horizon.LOCK_LIFE_HELD, own, own
  if own == 0 then return own, span end
  for _, part in ipairs(parts) do
    if limit_horizon.matters(part.l) then
      span = math.min(span, limit_horizon.MOST_SPAN_US)
      reach = math.max(reach, math.min(most, limit_horizon.known(part.l, now)))
    end
  end
  return reach, span
end

-- Records that a worker with that horizon was granted something ahead.
function limit_horizon.note(l, own, now)
  if not limit_horizon.matters(l) then return end
  local horizon, known = math.ceil(own / limit_horizon.STEP_US) * limit_horizon.STEP_US, limit_horizon.known(l, now)
  if horizon > known or (horizon == known and now - l.horizon_at > limit_switch.HORIZON_MEMORY_US / 2) then
    limit_switch.write(l.control, { horizon = horizon, horizon_at = now })
  end
end

return limit_horizon
