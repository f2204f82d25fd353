--- @include "text"
--- @include "bucket"
--- @include "shape"
--- @include "meter"
--- @include "job"
--- @include "departures"
--- @include "refusals"

-- Places: how many jobs hold one, and when some are free again.
local OPEN_ENDED_PAUSE_MS = 60000
local UNKNOWN_MS = 1000
-- The largest number of ms that a date of a client holds.
local MAX_MS = 8640000000000000

-- Jobs that take a place. Delayed ones beyond the capacity horizon do not, where one is set.
local function capacity_depth(base, shape, now)
  local delayed
  if shape.capacity_horizon_ms then
    -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
    local due = (math.floor(now / 1000) + shape.capacity_horizon_ms + 1) * 4096 - 1
    delayed = redis.call('ZCOUNT', base .. 'delayed', '-inf', exact_text(due))
  else
    delayed = redis.call('ZCARD', base .. 'delayed')
  end
  return redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') + delayed
    + redis.call('ZCARD', base .. 'waiting-children')
end

local function capacity_claimed(shape, now)
  if shape.claimed_until < now then return 0 end
  return shape.claimed
end

-- The job that leaves next, nil where none waits.
local function capacity_head(base)
  return redis.call('LINDEX', base .. 'wait', -1) or redis.call('ZRANGE', base .. 'prioritized', 0, 0)[1]
end

local function capacity_head_cost(base)
  local id = capacity_head(base)
  if not id then return nil end
  return (job_cost(base .. id))
end

-- The meter for reckoning only: it is opened, never saved.
local function capacity_meter(base, shape, now)
  if not shape.interval then return nil end
  return meter_open(base .. 'meta:meter', now, shape, '')
end

-- The time (µs) at which the n-th job from now may be taken, one horizon before its slot. Nil: not known.
local function capacity_nth_grant(base, shape, now, n)
  local m = capacity_meter(base, shape, now)
  if not m then
    local rate = departures_rate(base, now)
    if rate <= 0 then return nil end
    return math.max(now, shape.paused_until) + n / rate
  end
  local slot = bucket_nth_slot(m, n, capacity_head_cost(base) or m.mean_cost, m.mean_cost,
    math.max(m.now, shape.paused_until - m.origin))
  return m.origin + math.ceil(slot) - m.horizon
end

-- When n places are free: what waits leaves by the drain schedule, what is delayed not before it is due.
local function capacity_retry_ms(base, shape, now, n)
  local at = capacity_nth_grant(base, shape, now, n)
  if not at then at = now + UNKNOWN_MS * 1000 end
  local ready = redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized')
  if n > ready then
    local due = redis.call('ZRANGE', base .. 'delayed', n - ready - 1, n - ready - 1, 'WITHSCORES')[2]
    if not due then return math.max(UNKNOWN_MS, math.min(MAX_MS, math.ceil((at - now) / 1000))) end
    at = math.max(at, math.floor(tonumber(due) / 4096) * 1000)
  end
  return math.max(1, math.min(MAX_MS, math.ceil((at - now) / 1000)))
end
