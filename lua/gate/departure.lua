local occupancy = use 'admission/occupancy'
local plan = use 'admission/plan'
local refusals = use 'admission/refusals'
local move_to_active = use 'bullmq/moveToActive'
local fetched = use 'ends/fetched'
local gates = use 'gate/gates'
local grants = use 'gate/grants'
local held = use 'gate/held'
local sleepers = use 'gate/sleepers'
local wake = use 'gate/wake'
local queue_limits = use 'limits/queue-limits'
local meter = use 'meter/meter'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'
local redis_now = use 'redis/redis-now'
local run_id = use 'redis/run-id'
local audit = use 'reports/audit'
local bypass = use 'reports/bypass'
local ramp = use 'shape/ramp'
local shapes = use 'shape/shapes'

-- Shared by the BullMQ scripts that start jobs: opens the meter, lets jobs through the gate, composes the reply. The
-- reply of each of them has fixed positions (read by src/departure/reply.ts):
--   1 status      1 done, -1 Redis lost the shape that the caller knows (nothing was granted)
--   2 now         µs
--   3 result      BullMQ's own reply if it is not a job
--   4 grants      {job fields, id, slot µs, cost, cost µs, score of a prioritized job, lock token or '' for the call's}
--                 each
--   5 stop        full (of jobs, or of data: ends/fetched) | closed | empty | halted (paused or maxed) | limited
--                 (BullMQ's limiter) | unshaped
--   6 wake        µs at which the caller must ask again, '' if it need not
--   7 next        µs, the slot that the head of the queue would get, '' if unknown
--   8 delayed     when a worker that waits for the marker asks without one (ms): BullMQ's time of the next delayed job,
--                 or the end of an override; or 0
--   9 limited     ms that BullMQ's own limiter asks to wait, or 0
--  10 notes       with a meter: {loss, hold µs, step µs, id of a job that bypassed the meter, last slot before these
--                 grants µs, number of this grant, how often the clock has gone back so far, the longest horizon of the
--                 last minute µs, '' if that is the caller's}
--  11 id, 12 revision of the shape by which the jobs were granted, '' if there is none
--  13 news       the shape, if the caller knows another
--  14 lead       how much sooner than one horizon before its slot a job is requested, µs, and
--  15 span       that horizon, if queues share a limit (limits/queue-limits); else 0 and ''
--  16 passable   1 if a new job may depart before the next slot: all groups are held
-- call: key, base, identity ('id:revision' of the shape that the caller knows, '' if none),
--   horizon µs (0 for BullMQ's own worker, which gets no wake-up time of its own),
--   longest (the longest horizon of a worker that the caller knows of, µs, if it is not its own),
--   caller (worker id), is_plain (as in lua/verbs/exchange), grant (id of this call), memo_ms, token (locks the jobs,
--   if several may be granted); ends, if jobs of the caller end in this call, and began as in meter/pace for one of
--   them; ran, as in lua/verbs/exchange: {mean, off}; now (µs), meter, limits and fetched (jobs, as in gate/grants), if
--   ends/ungated has begun; once, as gate/gates has it
local departure = {}

function departure.open(call)
  local d = {
    call = call, now = call.now or redis_now(), granted = {}, fetched = call.fetched or {},
    stop = 'empty', limited = 0, delayed = 0, notes = {}, departed = call.fetched and #call.fetched or 0, audited = {},
  }
  local base = call.base
  d.shape = shapes.load(call.key, base, d.now)
  -- BullMQ's own worker leaves no grants where no shape is stored.
  d.remembers = d.shape or not call.is_plain
  delay_clock.knows(base, d.shape ~= nil or call.identity ~= '', d.now)
  if shapes.is_lost(d.shape, call.identity) then
    d.lost = true
    return d
  end
  if d.shape and d.shape.interval and d.shape.mode ~= 'off' then
    d.meter_key = base .. 'meta:meter'
    d.meter = call.meter or meter.open(d.meter_key, d.now, d.shape, run_id(), call.longest or call.horizon)
    d.last_before = meter.time(d.meter, d.meter.last)
    meter.note_horizon(d.meter, call.horizon, d.now)
    d.meter.lock_ms = tonumber(call.memo_ms)
    if not d.shape.metered then
      redis.call('HSET', call.key, 'metered', 1)
      shapes.revise(call.key, 0)
    end
  end
  d.gate = gates.new(d.shape, d.meter, base, d.now, call.horizon, call.once)
  d.gate.limits, d.gate.lock_ms = call.limits, tonumber(call.memo_ms)
  local g = d.gate.groups
  if g then
    g.lock_ms, g.horizon = d.gate.lock_ms, call.horizon
    -- If other queues share the limits, jobs are granted as far ahead as there.
    if g.limits and g.enforced then d.gate.horizon, d.gate.span = g.limits.reach(call.horizon, g.lock_ms) end
  end
  if d.gate.groups and d.meter and d.meter.filled then
    d.gate.groups:fill(d.meter.origin + math.ceil(d.meter.filled))
  end
  return d
end

-- The horizon that the caller uses; second, how much further ahead slots are granted: it asks that much sooner. µs
function departure.span(d)
  local span = d.gate.span or d.call.horizon
  return span, (d.gate.horizon or span) - span
end

-- BullMQ's script locks all jobs of a call with one token. Each needs its own, because the token identifies the job
-- that its worker fetches when this one ends (ends/quick-path).
function departure.token(d, id)
  local token = d.call.token
  if #d.granted == 0 or not token then return token or '' end
  token = token .. ':' .. #d.granted
  redis.call('SET', d.call.base .. id .. ':lock', token, 'XX', 'KEEPTTL')
  return token
end

-- A job with a deferred failure does not run.
function departure.count(d, id, slot)
  local gate = d.gate
  if gate.runs == false then return end
  d.departed, d.first = d.departed + 1, d.first or slot
  if not d.shape or not d.shape.audit or gate.open then return end
  local limits = d.shape.mode == 'enforce' and gate.limits or nil
  d.audited[#d.audited + 1] = audit.entry(id, slot, gate.cost, d.meter, limits, gate.pick)
end

-- Handles one reply of BullMQ's script. True if a job was granted and another may be requested. token: the lock token
-- of the job, if each has its own. Second, whether the job of a group may start at once: then it is no grant of the
-- reply. BullMQ's reply, which has its score too, takes the place of the ended job.
function departure.take(d, reply, token)
  local gate = d.gate
  if fetched.is_job(reply) then
    local slot = gate.slot or d.now
    local grant = {
      reply[1], reply[2], as_text.us(math.ceil(slot)), as_text.exact(gate.cost or 1), as_text.exact(gate.cost_us or 0),
      gate.score or '', token or departure.token(d, reply[2]),
    }
    local starts = token and gate.groups and not d.meter and d.shape.mode == 'enforce' and slot <= d.now
    if starts then
      reply[5] = grant[6]
      d.fetched[#d.fetched + 1] = { unpack(grant, 2, 6) }
    else
      d.granted[#d.granted + 1] = grant
    end
    departure.count(d, reply[2], slot)
    gate.slot, gate.score, gate.again, gate.tried = nil, nil, true, false
    local enough = fetched.is_enough(reply[1])
    if enough then d.stop = 'full' end
    return not enough, starts
  end
  if type(reply) == 'table' then
    d.limited, d.delayed = tonumber(reply[3]) or 0, tonumber(reply[4]) or 0
  end
  if gate.shut then d.stop = 'closed'
  elseif d.limited > 0 then d.stop = 'limited'
  elseif (gate.idle or not gate.tried) and wake.waits(d.call.base) then d.stop = 'halted' end
  return false
end

-- Repeats a grant for a worker that resends the same id: the reply was lost.
function departure.replay(d)
  local call = d.call
  local memo = d.remembers and grants.recall(call.base, call.grant)
  if not memo then return false end
  for _, grant in ipairs(memo.jobs) do
    local key = call.base .. grant[1]
    local token = redis.call('GET', key .. ':lock')
    -- A job without a token has gone back, or is gone.
    local fields = token and { redis.call('HGETALL', key), grant[1], grant[2], grant[3], grant[4], grant[5], token }
    d.granted[#d.granted + 1] = fields or nil
  end
  -- The stop reason and the next due time may be outdated: the worker asks.
  d.stop, d.repeated = 'full', true
  -- There may have been no rate then.
  if d.meter and memo.seq then d.meter.seq, d.last_before = memo.seq, memo.last_before end
  return true
end

-- The reply to a resent call, which stores nothing: a loss that it found is left to the next call. fewer: whether ends
-- fetched fewer jobs than intended. Otherwise the worker continues as before
function departure.reply_again(d, result, fewer)
  if d.meter then d.meter.loss = nil end
  return departure.reply(d, result, fewer and as_text.us(d.now) or '')
end

function departure.remember(d)
  local call, jobs = d.call, d.fetched
  for _, g in ipairs(d.granted) do jobs[#jobs + 1] = { unpack(g, 2, 6) } end
  if #jobs == 0 or not d.remembers then return end
  grants.keep(call.base, call.grant, call.memo_ms, jobs, d.last_before, d.meter and d.meter.seq, as_text.us(d.now))
end

-- If the last job to start did not pass the meter, some worker bypasses it. The next report counts its jobs.
function departure.find_foreign(d)
  redis.call('HSET', d.meter_key, 'foreignAt', as_text.us(d.now))
  -- The jobs granted just now precede it.
  local active = d.call.base .. 'active'
  local id
  if #d.granted > 0 then
    id = redis.call('LINDEX', active, #d.granted)
  else
    -- Reads the first one, without a keyspace miss if no job runs.
    id = redis.call('LMOVE', active, active, 'LEFT', 'LEFT')
  end
  if not id or not bypass.is_foreign(d.call.base, d.shape, id) then return end
  bypass.note(d.meter_key, d.now, id, 0)
  d.notes.foreign = id
end

-- A worker that has taken all it can at once hands on to sleeping workers, even if nothing waits: otherwise the next
-- job would find only full workers, and others that do not listen for it. Returns whether the head may depart now and
-- no sleeping worker could take it.
function departure.hand_on(d)
  local call, planned, passes = d.call, nil, nil
  if d.gate.open then return false end
  local function slots(i)
    planned = planned or plan.new(d.gate)
    local slot = plan.slot(planned, i)
    if i > 1 or (slot and slot <= d.now + d.gate.horizon) then return slot end
    gates.groups.hold(d.gate, planned)
    slot = math.min(slot or math.huge, queue_limits.next_end(planned.limits) + d.gate.horizon)
    if not d.gate.held then return slot end
    local head = d.gate.held
    -- The held head may let any ready group pass.
    local function any() return true end
    passes = passes or (head.unit and gates.groups.search(d.gate, head.group, head.unit, any) and d.now)
      or gates.groups.next_end(d.gate) + d.gate.horizon
    return math.min(slot, passes)
  end
  local span, lead = departure.span(d)
  if sleepers.hand_on(call.base, call.caller, d.now, span, sleepers.sooner(slots, lead)) then
    local head = planned and planned.first
    if head then wake.sleep_for(call.base, head.id, not planned.floors and head.cost, head.costs, d.gate.held) end
    return false
  end
  -- The places of an ended job, under a concurrency limit, may be enough for several that cost less.
  if not queue_limits.are_limited(d.shape.limits) or not wake.waits(call.base) then return false end
  return (slots(1) or math.huge) <= d.now
end

-- Whether this is the first departure since the queue rested.
function departure.is_first(d)
  return d.shape.rests and d.departed > 0
end

function departure.sleep(d, spare)
  local call, gate = d.call, d.gate
  local key, planned = call.base .. 'meta:sleepers', plan.new(gate, gate.next)
  local function slots(i) return plan.slot(planned, i) end
  local span, lead = departure.span(d)
  local asks = sleepers.add(key, call.caller, d.now, span, sleepers.sooner(slots, lead), spare)
  local ends = math.min(gates.groups.next_end(gate), queue_limits.next_end(gate.limits))
  if ends < math.huge then asks = sleepers.hasten(key, call.caller, asks, math.max(d.now + 1000, ends)) end
  wake.sleep_for(call.base, gate.next_id, not gate.passable and gate.next_cost, gate.costs, gate.held)
  if d.delayed > 0 then
    local due = math.max(d.now + 1000, d.delayed * 1000)
    asks = sleepers.hasten(key, call.caller, asks, due)
  end
  if d.shape.expires then asks = math.min(asks, d.shape.expires * 1000) end
  if departure.is_first(d) then asks = math.min(asks, ramp.step_ms(d.shape.ramp_up, d.first) * 1000) end
  return asks
end

-- Decides which worker asks next: this one at a time of its own, or one that BullMQ's marker wakes.
function departure.settle(d, asked)
  local call = d.call
  local spare = asked - #d.granted
  if d.stop == 'empty' and spare == 0 then d.stop = 'full' end
  -- Only the marker wakes a worker of an empty queue.
  if call.horizon > 0 and not d.gate.open and d.shape.capacity and d.stop ~= 'empty' then
    d.woken = tonumber(redis.call('ZSCORE', call.base .. 'meta:sleepers', call.caller) or nil)
  end
  -- A worker that got as many jobs as it finished keeps its wake-up time, if it has one: it may have room for more. One
  -- that got fewer, because they are large (ends/fetched), asks again at once.
  local goes_on = call.ends and d.stop == 'full'
  if not d.gate.open and d.stop ~= 'closed' and not goes_on then
    redis.call('ZREM', call.base .. 'meta:sleepers', call.caller)
  end
  local left = d.stop == 'full' and departure.hand_on(d)
  if call.horizon == 0 then return '' end
  if goes_on and (left or spare > 0) then return as_text.us(d.now) end
  local marker = call.base .. 'marker'
  if d.stop == 'closed' then
    local asks = departure.sleep(d, spare)
    -- One sleeper is enough: another worker woken now would find the gate shut.
    redis.call('ZREM', marker, '0')
    return as_text.us(asks)
  end
  -- A woken worker would also get no job at the global concurrency limit (the end of a job sets the marker again), or
  -- if none waits.
  local settled = d.stop == 'halted' or (d.stop == 'empty' and #d.granted + #d.fetched > 0)
  if settled and d.shape then redis.call('ZREM', marker, '0') end
  return ''
end

-- What holds the head from now on, and until when.
function departure.holds(d)
  if d.stop == 'closed' then return d.gate.holds, d.gate.next end
  if d.stop == 'limited' then return 'rate', d.now + d.limited * 1000 end
  if d.stop == 'halted' then
    if redis.call('HEXISTS', d.call.base .. 'meta', 'paused') == 1 then return 'pause' end
    return d.gate.idle and d.gate.groups:cause() or 'concurrency'
  end
  if d.stop ~= 'full' or not wake.waits(d.call.base) then return '' end
  local m = d.meter
  if not m or m.mode ~= 'enforce' then return 'workers' end
  return 'rate', (meter.start(m, m.mean_cost, d.shape.paused_until))
end

-- Records how fast jobs depart, and how workers ask. Departures that empty a queue say nothing about its workers.
function departure.pace(d, count)
  local shape, base, empty = d.shape, d.call.base, d.stop == 'empty'
  if not shape then return end
  local m, total = d.meter, count > 0 and pace.total(base, d.meter and d.departed or count)
  local has_left = total and (shape.capacity or not m)
  local has_asked = shape.capacity and (count > 0 or empty or d.stop == 'closed')
  if not has_left and not has_asked then return end
  local p = m and pace.of(m.pace) or pace.read(base)
  local horizon, from = p.horizon, p.from
  if has_left then pace.depart(p, d.now, total) end
  if has_asked then
    if empty then p.from = 0 end
    if d.call.began then pace.ran(p, d.now - d.call.began, 0) end
    if d.call.ran then pace.ran(p, d.call.ran[1], d.call.ran[2]) end
    if d.call.horizon > 0 and not d.gate.open then
      p.horizon = d.gate.horizon
      local late = d.woken and d.now - d.woken or 0
      if late > 0 and late < pace.LATE_US then p.late = p.late + (late - p.late) / 8 end
    end
  end
  if count == 0 and p.horizon == horizon and p.from == from then return end
  local packed = pace.packed(p)
  if m and m.changed then m.pace = packed else redis.call('HSET', base .. 'meta:meter', 'pace', packed) end
end

-- The rate of a queue that rested rises from its first slot on, which may be ahead; after a loss of state it rests.
function departure.rise(d)
  local key, base, shape = d.call.key, d.call.base, d.shape
  if departure.is_first(d) then shapes.rise(key, base, d.now, math.ceil(d.first / 1000))
  elseif d.meter.loss and shape.ramp_up.afterIdleMs and not shape.rests then shapes.rise(key, base, d.now) end
end

function departure.save(d)
  wake.touched()
  local base, shape, m, count = d.call.base, d.shape, d.meter, #d.granted + #d.fetched
  if d.gate.groups then d.gate.groups:save() end
  if count > 0 and shape and (shape.capacity or shape.max_wait_ms) then
    -- The last refusals of a burst are reported here: no later refusal does that.
    local unreported = m and refusals.due_of(m.refused, m.refused_at, d.now) or refusals.due(base, d.now)
    if unreported > 0 then refusals.tell(base, d.now, unreported, (occupancy.depth(base, shape, d.now)), shape.capacity) end
  end
  if d.gate.limits then
    queue_limits.save(d.gate.limits, base, d.stop == 'closed', d.call.horizon)
  elseif d.stop == 'empty' and shape and shape.limits then
    queue_limits.free_others(base, shape.limits)
  end
  if (d.gate.delayed_in_shadow or 0) > 0 then
    redis.call('HINCRBY', base .. 'meta:meter', 'shadowDelayed', d.gate.delayed_in_shadow)
  end
  if shape and shape.audit then audit.keep(base, shape.audit, d.audited, d.now) end
  if held.counts(shape) then
    local holds, slot = departure.holds(d)
    held.note(base .. 'meta:meter', d.now, holds, slot, m and m.held)
  end
  if m then
    if meter.foreign_due(m, d.now) then departure.find_foreign(d) end
    meter.note_horizon(m, d.gate.horizon, d.now)
  end
  departure.pace(d, count)
  if m and m.changed then meter.save(d.meter_key, m) end
  if m and shape.ramp_up then departure.rise(d) end
end

-- When a worker that waits for the marker asks although none comes, ms: when the next delayed job is due, or at the end
-- of an override, which may have a higher concurrency behind it. 0 if there is neither.
function departure.due(d)
  local ends = d.shape and d.shape.concurrency and d.shape.expires
  if not ends or (d.stop ~= 'empty' and d.stop ~= 'halted') then return math.floor(d.delayed) end
  return math.floor(d.delayed > 0 and math.min(d.delayed, ends) or ends)
end

function departure.reply(d, result, asks)
  local shape, m, notes = d.shape, d.meter, d.notes
  -- A repeated grant used the caller's knowledge at its first request, or later: pauses since then are news to it.
  local revision = d.repeated and string.match(d.call.identity, '%d*$') or (shape and shape.revision)
  local next_slot, span, lead = d.gate.next, departure.span(d)
  if not next_slot and m then next_slot = meter.start(m, 1, shape.paused_until) end
  return {
    1, as_text.us(d.now), result, d.granted, d.stop, asks, next_slot and as_text.us(next_slot) or '',
    departure.due(d), d.limited,
    m and { m.loss or '', as_text.us(m.hold_us or 0), as_text.us(m.step_us or 0), notes.foreign or '',
      as_text.us(d.last_before), m.seq, m.steps, m.horizon > d.call.horizon and as_text.us(m.horizon) or '' } or {},
    shape and shape.id or '', revision or '',
    shapes.news(d.call.key, shape, d.call.identity),
    lead == 0 and 0 or as_text.us(lead), d.gate.span and as_text.us(span) or '', d.gate.passable and 1 or 0,
  }
end

-- Starts jobs in free places, behind the gate: BullMQ's moveToActive, once for each. asked: the number of places;
-- timestamp and options: of BullMQ's script. Returns the reply.
function departure.start(call, asked, timestamp, options)
  local d = departure.open(call)
  if d.lost then return { -1, as_text.us(d.now) } end
  if not d.shape and not call.allows_unshaped then
    d.stop = 'unshaped'
    return departure.reply(d, 0, '')
  end
  if d.remembers and grants.may_be_kept(call.base, call.grant) and departure.replay(d) then return departure.reply_again(d, 0) end
  local keys, args = move_to_active.keys(call.base), { call.base, timestamp, options }
  while #d.granted < asked and departure.take(d, move_to_active.run(d.gate.redis, keys, args)) do end
  local asks = departure.settle(d, asked)
  departure.save(d)
  departure.remember(d)
  return departure.reply(d, 0, asks)
end

return departure
