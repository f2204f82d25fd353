local held = use 'gate/held'
local bucket = use 'meter/bucket'
local service = use 'meter/service'

-- The meter: the bucket as stored in Redis, and everything that can happen to it between two calls. The field `bucket`
-- of the meter's hash has meter.FORMAT: twelve doubles in the order of meter.unpacked, and two texts. With a rate that
-- follows the clock, a bucket counts in service (meter/service), as if time passed more slowly at lower rates: stored
-- times are seen from `seen`, and meter.at, time, after and offset convert them.
--   m.service   of the current shape, nil for a fixed rate
--   m.changed   whether it must be saved
--   m.reset     whether more has changed than departures change
--   m.filled    until when a loss fills the bucket, if this call detected the loss
--   m.pace      the field `pace` (meter/pace), stored with it
-- REBASE_US is 2^42 µs: up to there a time is exact on the bucket's grid (meter/bucket).
local meter = { REBASE_US = 4398046511104, FORMAT = '<ddddddddddddss' }
local HORIZON_MEMORY_US = 60000000
local FOREIGN_CHECK_US = 1000000
-- The service of a rate is looked up this far back.
local PAST_US = 86400000000
-- How long locks last if the caller does not say.
local LOCK_MS = 30000
-- The time of the last loss of a meter without any.
local NEVER = -math.huge

function meter.rebase(m, now)
  m.origin = m.origin + m.now
  m.reset = true
  m.tat = m.tat - m.now
  m.last = m.last - m.now
  m.loss_at = m.loss_at - m.now
  m.now = now - m.origin
end

-- State was lost or may be stale (another run of Redis): the grants that other workers hold are unknown, so the bucket
-- is full after the longest horizon that one of them may have, as far as known by now (see meter.open). Not if the hash
-- slot of the queue moved to another node of a cluster, with all its data: a node that ran before the meter was last
-- written, and was never promoted, has missed nothing.
function meter.recover(m, shape, longest, now)
  local server = redis.call('INFO', 'server')
  -- The uptime is the difference of two times in whole seconds.
  local up_s = tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) or 0
  local ran = m.run ~= '' and m.origin + m.now - (up_s - 1) * 1000000 <= m.seen
  -- Redis calls it redis_mode, Valkey server_mode.
  if ran and string.find(server, '_mode:cluster', 1, true)
    and string.find(redis.call('INFO', 'replication'), 'master_replid2:0+%s') then return end
  m.loss = 'burst'
  if shape.on_state_loss ~= 'hold' then return end
  m.loss_at = m.now
  m.filled = m.now + math.max(m.horizon, shape.horizon, longest)
  bucket.fill(m, meter.after(m, m.filled - m.now))
  meter.note_horizon(m, longest, now)
  m.loss = 'hold'
  m.hold_us = math.max(0, meter.offset(m, bucket.slot(m, 1, m.now)))
end

-- The bucket of the field `bucket`, as it was when it was stored, nil if there is none.
function meter.unpacked(packed, shape)
  if not packed then return nil end
  local m = { known = true, reset = false, changed = false, pace = false, service = shape and shape.service }
  m.origin, m.tat, m.last, m.seen, m.interval, m.burst, m.horizon, m.horizon_at, m.mean_cost, m.seq, m.steps, m.loss_at, m.run,
    m.mode = struct.unpack(meter.FORMAT, packed)
  m.now = m.seen - m.origin
  return m
end

-- The bucket as last stored, nil if there is none.
function meter.stored(base, shape)
  return meter.unpacked(redis.call('HGET', base .. 'meta:meter', 'bucket'), shape)
end

-- The bucket's time at a time since 1970.
function meter.at(m, us)
  local ahead = us - (m.origin + m.now)
  -- For a longer past, only the fact that it is past matters.
  if not m.service or ahead < -PAST_US then return m.now + ahead end
  if ahead >= 0 then return m.now + service.between(m.service, us - ahead, us) end
  return m.now - service.between(m.service, us, us - ahead)
end

-- When a time of the bucket comes, µs since 1970, rounded up.
function meter.time(m, at)
  if not m.service then return m.origin + math.ceil(at) end
  return service.after(m.service, m.origin + m.now, at - m.now)
end

-- The bucket's time so many µs from now, and how many µs from now a time of the bucket comes.
function meter.after(m, offset)
  return m.service and meter.at(m, m.origin + m.now + offset) or m.now + offset
end

function meter.offset(m, at)
  return m.service and meter.time(m, at) - m.origin - m.now or at - m.now
end

-- The first time from `offset` on at which the rate is above 0, µs from now.
function meter.open_from(m, offset)
  return m.service and math.max(offset, meter.offset(m, meter.after(m, offset))) or offset
end

-- Whether the last slot was at least `us` µs ago, and nothing has been owed since.
function meter.rests(m, now, us)
  return now - meter.time(m, m.last) >= us and meter.time(m, m.tat) <= now
end

-- Passes time: less than the full time is served where the rate is below its maximum.
function meter.pass(m, now)
  if m.service and now > m.seen then
    local lag = now - m.seen - service.between(m.service, m.seen, now)
    m.tat, m.last = m.tat + lag, m.last + lag
  end
  m.now, m.seen = now - m.origin, now
  if m.now > meter.REBASE_US then meter.rebase(m, now) end
end

function meter.store(key, m)
  local packed = struct.pack(meter.FORMAT, m.origin, m.tat, m.last, m.seen, m.interval, m.burst, m.horizon, m.horizon_at,
    m.mean_cost, m.seq, m.steps, m.loss_at, m.run, m.mode)
  if m.pace then redis.call('HSET', key, 'bucket', packed, 'pace', m.pace) else redis.call('HSET', key, 'bucket', packed) end
end

function meter.read(key, now, shape)
  local f = redis.call('HMGET', key, 'bucket', 'pace', 'foreignAt', 'refused', 'refusedAt', unpack(held.NOTED))
  local m = meter.unpacked(f[1], shape) or {
    reset = true, origin = now, now = 0, tat = 0, last = 0, seen = now, interval = shape.interval, burst = shape.burst,
    horizon = 0, horizon_at = 0, mean_cost = 1, seq = 0, steps = 0, loss_at = NEVER, run = '', mode = shape.mode,
    service = shape.service,
  }
  m.pace, m.foreign_at = f[2], tonumber(f[3] or 0)
  m.refused, m.refused_at, m.held = f[4], f[5], { f[6], f[7], f[8] }
  return m
end

-- Brings the bucket up to `now`: lost state, a clock that went back, a changed shape. run is Redis's run_id, '' if the
-- caller does not read it (a restart is then not noticed here); longest is the longest horizon of a worker that the
-- caller knows of, 0 if none.
function meter.open(key, now, shape, run, longest)
  local m = meter.read(key, now, shape)
  m.changed = not m.known
  if now < m.seen then
    -- Distances in time are kept.
    m.step_us = m.seen - now
    m.steps = m.steps + 1
    m.origin = m.origin - m.step_us
    m.changed, m.reset = true, true
  end
  meter.pass(m, now)
  if m.interval ~= shape.interval or m.burst ~= shape.burst then
    bucket.reshape(m, shape.interval, shape.burst, shape.changed_at < now and meter.at(m, shape.changed_at) or m.now)
    m.changed, m.reset = true, true
  end
  if m.mode ~= shape.mode then m.mode, m.changed, m.reset = shape.mode, true, true end
  if run ~= '' and m.run ~= run then
    if m.run ~= '' or shape.metered then meter.recover(m, shape, longest, now) end
    m.run = run
    m.changed, m.reset = true, true
  elseif run ~= '' and m.now - m.loss_at < longest then
    -- Slots may have been granted up to the longest horizon after the loss, and the process that noticed it may know
    -- only shorter ones: a longer one prolongs the hold. One that is not longer changes nothing.
    m.filled, m.changed = m.loss_at + longest, true
    bucket.fill(m, meter.after(m, m.filled - m.now))
    meter.note_horizon(m, longest, now)
  end
  return m
end

-- Redis's clock went back: keys would expire that much later. The locks of a dead worker would keep its jobs in
-- `active` for that long, unnoticed. A lock renewed since looks like any other, so none is cut below the lock duration
-- of its worker, lock_ms.
local function locks_follow(base, step_us, lock_ms)
  local step_ms = math.floor(step_us / 1000)
  redis.call('DEL', base .. 'stalled-check')
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', 0, -1)) do
    local key = base .. id .. ':lock'
    local left_ms = redis.call('PTTL', key)
    local kept_ms = math.max(left_ms - step_ms, math.min(left_ms, lock_ms or LOCK_MS))
    if left_ms > kept_ms then redis.call('PEXPIRE', key, kept_ms) end
  end
end

-- seq numbers the saves, so that a refund can tell whether its grant is still the last one; steps counts how often the
-- clock went back, so that every worker learns of it and not only the one that detected it.
function meter.save(key, m)
  m.seq = m.seq + 1
  if m.step_us then locks_follow(string.sub(key, 1, -11), m.step_us, m.lock_ms) end
  meter.store(key, m)
  m.reset = false
end

-- The largest horizon of the last minute, used by admission and by a hold.
function meter.note_horizon(m, horizon, now)
  if horizon >= m.horizon or now - m.horizon_at > HORIZON_MEMORY_US or now < m.horizon_at then
    m.reset = m.reset or horizon ~= m.horizon
    m.horizon = horizon
    m.horizon_at = now
  end
end

-- Whether it is time to look for jobs that bypass the meter: once a second.
function meter.foreign_due(m, now)
  return now - m.foreign_at >= FOREIGN_CHECK_US or now < m.foreign_at
end

-- The slot that a job of this cost would get now, including a pause, in the bucket's time.
function meter.slot(m, cost, pause)
  return math.max(bucket.slot(m, cost, m.now), meter.at(m, pause))
end

-- The same as a time since 1970; second, in the bucket's time, which has fractions of a microsecond and is what is
-- charged.
function meter.start(m, cost, pause)
  local slot = meter.slot(m, cost, pause)
  return math.max(meter.time(m, slot), pause), slot
end

-- When the n-th departure from now may start (µs since 1970), if the first of them costs `cost` and the others the
-- mean.
function meter.nth_start(m, n, cost, pause)
  local slot = bucket.nth_slot(m, n, cost, m.mean_cost, math.max(m.now, meter.at(m, pause)))
  return math.max(meter.time(m, slot), pause)
end

function meter.charge(m, cost, slot)
  bucket.charge(m, cost, slot)
  m.mean_cost = m.mean_cost + (cost - m.mean_cost) / 16
  m.changed = true
end

-- Shadow mode: TAT moves as if enforced, up to a full bucket; nothing is held. When shadow mode ends, the queue thus
-- owes at most one bucket, however many jobs departed.
function meter.charge_shadow(m, cost)
  bucket.charge(m, cost, m.now)
  m.tat = math.min(m.tat, m.now + m.burst * m.interval)
  m.changed = true
end

return meter
