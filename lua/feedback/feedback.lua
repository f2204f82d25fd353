local changes = use 'feedback/changes'
local pacing = use 'feedback/pacing'
local limit_checks = use 'limits/checks'
local limit_control = use 'limits/control'
local limit_state = use 'limits/state'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local ramp = use 'shape/ramp'

local feedback = {}

-- Downstream feedback, kept in the field `feedback` of the shape (JSON). Times are ms unless they say µs.
--   epoch      µs, text: answers to departures up to then belong to the known throttling
--   pauses     consecutive pauses without a time: each lasts twice as long as the last
--   pace       the rate being searched for: interval, and how it climbs (feedback/pacing)
--   quota      the pace at which the rest of a quota lasts until its reset
--   slow       a temporary rate
--   concurrency  a limit of running jobs; if it follows from refusals: from (its value before), wall (the value refused
--              last), at (since when, ms), oks (successful calls since then), quietMs
--   doubt, well  refusals that may concern single jobs (feedback/evidence)
--   ramp       the rate rises after a long pause (shape/ramp): from, since
--   last       the last change: kind, scope, source, reason, by, at
-- quota, slow and concurrency end at their `until`. Slots are never granted further ahead than EPOCH_AHEAD (µs): a
-- later epoch comes from a clock that has gone back since.
local EPOCH_AHEAD = 60000000

-- r: the request, with now µs, now_ms, doc, changes, and configured: the interval of the shape's rate, nil without one
function feedback.note(r, f, change)
  change.scope, change.source, change.reason, change.by, change.at = f.scope, f.source, f.reason, r.by, r.now_ms
  r.changes[#r.changes + 1] = change
  r.doc.last = change
end

-- Whether it is news: the answer to a departure after the last known throttling.
function feedback.fresh(r)
  return not r.epoch or r.epoch > r.now + EPOCH_AHEAD or r.sent == nil or r.sent > r.epoch
end

-- Slots granted ahead still depart at the previous rate.
function feedback.heard(r, shape)
  local m = meter.stored(r.base, shape)
  local granted = m and meter.time(m, m.last) or 0
  r.doc.epoch = as_text.us(math.max(r.now, granted))
end

-- Without a configured rate, one unit a day.
function feedback.floor(r)
  if r.adapt and r.adapt.floor then return bucket.interval(r.adapt.floor) end
  return r.configured and r.configured * 100 or 86400000000
end

local function feedback_fell(r, f, pace, current)
  r.doc.pace = pace
  if pace.interval == current then return end
  feedback.note(r, f, { kind = 'slow', rate = changes.rate_text(pace.interval), from = changes.rate_text(current) })
end

-- The rate falls once per epoch.
function feedback.decrease(r, f)
  if not (r.adapt and r.configured and feedback.fresh(r)) then return end
  local before = r.doc.pace
  local current = math.max(r.configured, before and before.interval or 0)
  local interval = math.max(current, math.min(current / r.adapt.decrease, feedback.floor(r)))
  feedback_fell(r, f, pacing.refused(before, current, interval, r.adapt, r.now_ms), current)
end

-- After a long pause. Runs after the decrease, whose wall it keeps.
function feedback.slow_start(r, f)
  local before = r.doc.pace
  local current = math.max(r.configured, before and before.interval or 0)
  feedback_fell(r, f, pacing.slow_start(before, current, feedback.floor(r), r.adapt, r.now_ms), current)
end

local function feedback_pause_queue(r, f, ms)
  local said = r.now + ms * 1000
  if said <= (tonumber(redis.call('HGET', r.key, 'pausedUntil')) or 0) then return end
  -- Jitter: clients with the same answer must not all return at once.
  local at = math.ceil(said + r.jitter * math.min(r.limits.jitterMs * 1000, ms * 100))
  redis.call('HSET', r.key, 'pausedUntil', as_text.us(at), 'pauseReason', f.reason)
  -- A probe in flight departed earlier: its outcome says nothing about the time after this pause.
  if f.hard or r.unnamed or redis.call('HEXISTS', r.key, 'probe') == 1 then
    redis.call('HSET', r.key, 'probe', (r.unnamed and 'seek ' or 'armed ') .. as_text.us(r.limits.probeMs))
  end
  if r.adapt and r.configured and ms >= r.limits.slowStartMs then r.long_pause = f end
  if r.ramps then r.doc.ramp = ramp.paused(r.doc.ramp, r.now_ms, math.ceil(at / 1000)) end
  feedback.note(r, f, { kind = 'pause', ['until'] = math.ceil(at / 1000), hard = f.hard and true or nil })
end

-- A pause that names one limit of the shape blocks that limit for all its users; true if there is such a limit.
local function feedback_block_limit(r, f, ms)
  for _, l in ipairs(r.shape_limits) do
    -- The refused member of a pool is unknown here.
    if l.name == f.scope.limit and not l.pool then
      local control = limit_control.of_queue(l, r.base)
      local at = r.now + math.ceil(ms * 1000)
      limit_control.block(control, control .. l.state, r.now, at)
      feedback.note(r, f, { kind = 'pause', ['until'] = math.ceil(at / 1000) })
      return true
    end
  end
  return false
end

-- Without a time, each consecutive pause lasts twice as long, up to most_ms.
function feedback.pause_ms(r, f, most_ms)
  -- "At once" from a downstream that has just refused is not a time.
  if f.forMs and f.forMs >= 1 then return math.min(f.forMs, r.limits.maxPauseMs) end
  -- An answer counts once, even with several findings.
  if r.counted or not feedback.fresh(r) then return nil end
  r.counted = true
  r.doc.pauses = (r.doc.pauses or 0) + 1
  return math.min(r.limits.pauseMs * 2 ^ math.min(r.doc.pauses - 1, 40), most_ms)
end

-- Checking whether an unreachable destination is back costs almost nothing, and the destination cannot announce it.
function feedback.pause(r, f, most_ms)
  local ms = feedback.pause_ms(r, f, most_ms or (f.about and r.limits.maxDownMs or r.limits.maxBackoffMs))
  if not ms then return end
  if type(f.scope) == 'table' and f.scope.limit and feedback_block_limit(r, f, ms) then return end
  feedback_pause_queue(r, f, ms)
end

local function feedback_keep_slowest(r, f, interval, ttl_ms)
  local known = r.doc.slow
  local ends = r.now_ms + math.ceil(ttl_ms)
  if known and known.interval >= interval and known['until'] >= ends then return end
  if known then interval, ends = math.max(interval, known.interval), math.max(ends, known['until']) end
  r.doc.slow = { interval = interval, ['until'] = ends }
  feedback.note(r, f, { kind = 'slow', rate = changes.rate_text(interval), ['until'] = ends })
end

function feedback.slow(r, f)
  if f.rate then
    return feedback_keep_slowest(r, f, bucket.interval({ f.rate.limit, f.rate.period }), f.ttlMs or r.limits.slowMs)
  end
  local current = r.configured or 0
  for _, entry in pairs({ r.doc.pace, r.doc.slow, r.doc.quota }) do current = math.max(current, entry.interval or 0) end
  if r.unnamed and (r.suspected or redis.call('HEXISTS', r.key, 'probe') == 1) then
    -- A probe shows whether the rate is the cause at all.
    feedback.pause(r, f, r.limits.maxSlowPauseMs)
  elseif f.ttlMs and current > 0 then
    local interval = math.max(current, math.min(current / f.factor, feedback.floor(r)))
    if feedback.fresh(r) then feedback_keep_slowest(r, f, interval, f.ttlMs) end
  elseif not (r.adapt and r.configured) then
    -- There is no rate to reduce. The answer was about speed, not a refusal: the pause is short.
    feedback.pause(r, f, r.limits.maxSlowPauseMs)
  end
end

-- The limit of running jobs.
local running = {}

function running.limit(r, f, entry)
  r.doc.concurrency = entry
  feedback.note(r, f, { kind = 'concurrency', limit = entry.limit, ['until'] = entry['until'] })
end

-- Reduces the refused number by the factor, to no less than one: once for all workers that saw the same throttling,
-- like the rate.
function running.fewer(r, f, ends)
  if not r.fresh then return end
  local known = r.doc.concurrency
  -- A number given by the downstream is not an estimate.
  if known and not known.wall then return end
  -- A probe runs alone: the number that was too high is the one at the start of the pause before it.
  local ran = r.doc.suspicion and r.doc.suspicion.running or 1
  local current = known and known.limit or tonumber(redis.call('HGET', r.base .. 'meta', 'concurrency'))
    or math.max(ran, redis.call('LLEN', r.base .. 'active'))
  local from = known and known.from or current
  local entry = {
    limit = math.max(1, math.floor(current * f.factor)), wall = current, from = from, at = r.now_ms, oks = 0,
    quietMs = r.adapt and r.adapt.quietMs or r.limits.quietMs, ['until'] = ends,
  }
  if entry.limit < from then running.limit(r, f, entry) end
end

function feedback.concurrency(r, f)
  local ends = r.now_ms + math.ceil(f.ttlMs or r.limits.slowMs)
  if not f.limit then return running.fewer(r, f, ends) end
  local known, limit = r.doc.concurrency, math.max(1, math.floor(f.limit))
  if known and known.limit == limit and known['until'] >= ends - 1000 then return end
  running.limit(r, f, { limit = limit, ['until'] = ends })
end

-- The remaining quota belongs to a limit of the shape, which must not have more left either.
local function feedback_lower_limit(r, f)
  for _, l in ipairs(r.shape_limits) do
    if l.name == f.scope.limit and not l.pool then
      limit_checks.prepare(l, limit_control.of_queue(l, r.base), r.now)
      limit_state.lower(l, l.verbs.open(l.control .. l.state, l, r.now), f.remaining)
    end
  end
end

-- Paces the rest of a quota until its reset.
function feedback.quota(r, f)
  if f.scope ~= 'queue' and f.remaining and f.remaining > 0 then feedback_lower_limit(r, f) end
  if not (f.remaining and f.resetMs and f.resetMs > 0) then return end
  local left = f.remaining - math.max(0, redis.call('LLEN', r.base .. 'active') - 1)
  if f.remaining <= 0 or (left <= 0 and r.adapt) then return feedback.pause(r, {
    scope = f.scope, source = f.source, reason = f.reason, forMs = f.resetMs,
  }) end
  -- Units of another limit are not those of the rate.
  if not r.adapt or f.scope ~= 'queue' then return end
  local interval, ends = f.resetMs * 1000 / left, r.now_ms + math.ceil(math.min(f.resetMs, r.limits.maxPauseMs))
  local known = r.doc.quota
  if interval <= (r.configured or 0) then
    if known then r.doc.quota = nil; r.reshaped = true end
    return
  end
  if known and math.abs(interval / known.interval - 1) < 0.05 then return end
  r.doc.quota = { interval = interval, ['until'] = ends }
  feedback.note(r, f, { kind = 'quota', rate = changes.rate_text(interval), ['until'] = ends })
end

-- The rate never exceeds the downstream's policy.
local function feedback_policy(r, f)
  if not (r.adapt and f.policyRate and f.scope == 'queue') then return end
  local interval = bucket.interval({ f.policyRate.limit, f.policyRate.period })
  local known = r.doc.slow
  -- Every answer repeats the policy, which is not a change each time.
  if known and known.interval >= interval and known['until'] - r.now_ms > r.limits.slowMs / 2 then return end
  if interval > (r.configured or 0) then feedback_keep_slowest(r, f, interval, r.limits.slowMs) end
end

local function feedback_resume(r, f)
  local state = string.match(redis.call('HGET', r.key, 'probe') or '', '^(%a+)')
  local paused = tonumber(redis.call('HGET', r.key, 'pausedUntil')) or 0
  if not (state == 'out' or state == 'sought') or not r.sent or r.sent < paused then return end
  redis.call('HDEL', r.key, 'probe')
  r.contradicted = state == 'sought'
  feedback.note(r, f, { kind = 'resumed' })
end

-- A pause is not a quiet period.
local function feedback_since(r, pace)
  local paused = tonumber(redis.call('HGET', r.key, 'pausedUntil')) or 0
  return math.max(pace.at, math.ceil(paused / 1000))
end

-- After some successful calls one more job may run: soon if below the refused number, then once per quiet period, up to
-- the previous number.
function running.more(r, f, count)
  local known = r.doc.concurrency
  if not (known and known.wall) then return end
  known.oks, known.at = known.oks + count, math.min(known.at, r.now_ms)
  local near = known.limit + 1 < known.wall
  local waited = r.now_ms - feedback_since(r, known)
  if known.oks == 0 or waited < (near and known.quietMs / 10 or known.quietMs) then return end
  known.limit, known.at, known.oks = known.limit + 1, r.now_ms, 0
  if known.limit < known.from then return running.limit(r, f, known) end
  r.doc.concurrency = nil
  feedback.note(r, f, { kind = 'concurrency', limit = known.limit })
end

-- The rate rises after a quiet period in which it was used. count: successful calls since the last report
function feedback.successes(r, f, count)
  if r.doc.pauses and feedback.fresh(r) then
    r.doc.pauses, r.reshaped = nil, true
    if r.doc.suspicion then r.doc.suspicion.running = nil end
  end
  feedback_resume(r, f)
  feedback_policy(r, f)
  feedback.quota(r, f)
  running.more(r, f, count)
  local pace = r.doc.pace
  if not pace then return end
  if not r.configured then r.doc.pace, r.reshaped = nil, true; return end
  pace.oks, pace.at = pace.oks + count, math.min(pace.at, r.now_ms)
  local m = meter.stored(r.base)
  local from, reached = pacing.rise(pace, r.configured, r.now_ms, feedback_since(r, pace), m and m.mean_cost or 1)
  if not from then return end
  if reached == r.configured then r.doc.pace, r.reshaped = nil, true end
  -- With a floor above the configured rate, nothing fell.
  if reached == from then return end
  feedback.note(r, f, { kind = 'rise', rate = changes.rate_text(reached), from = changes.rate_text(from) })
end

return feedback
