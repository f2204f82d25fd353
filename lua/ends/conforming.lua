local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local end_kind = use 'ends/kind'
local quick_answer = use 'ends/quick-answer'
local grants = use 'gate/grants'
local held = use 'gate/held'
local sleepers = use 'gate/sleepers'
local wake = use 'gate/wake'
local charged = use 'limits/charged'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'
local hooked_redis = use 'redis/hooked-redis'
local run_id = use 'redis/run-id'
local job_options = use 'shape/job-options'

-- If only a rate and limits may hold the jobs of a queue, and the next jobs conform to them now, BullMQ's script
-- fetches them by itself, as in ends/quick-path: the rest of the gate is not set up, and the reply is BullMQ's.
--   q.time, q.now, q.at   when all of them depart: Redis's reply to TIME, µs, and these as text
--   q.meter         with a rate; q.slot_before is the last slot granted before (µs)
--   q.charged       what is kept with each job under limits (limits/charged)
--   q.parts         the limits, as in limits/queue-limits; for each
--     part.room     units that conform together now; they are charged all at once, at the end
--     part.asked    what the next job takes of them
--     part.total    what was taken
--   q.heads         ids of the wait list, one more than requested, the next one last
--   q.next          the job that conforms now, and q.cost: only that one may be fetched
--   q.jobs          the ids of the fetched jobs
--   q.redis         what BullMQ's script gets as `redis`

-- If the mean job takes more than this many units, the gate is needed sooner.
local ROOM_PER_JOB = 16

local function pop(q, call, source, target)
  local id = call('RPOPLPUSH', source, target)
  if not id or id ~= q.next then
    -- The end of a job has put another job before it, whose cost was not checked.
    if id then call('LMOVE', target, source, 'LEFT', 'RIGHT') end
    q.displaced = true
    return false
  end
  for _, part in ipairs(q.parts) do
    part.room, part.total = part.room - part.asked, part.total + part.asked
  end
  if q.meter then meter.charge(q.meter, q.cost, q.meter.now) end
  q.heads[#q.heads], q.next = nil, nil
  q.jobs[#q.jobs + 1] = id
  return id
end

local function handlers_of(q, base, wanted)
  local call, handlers = redis.call, wanted > 1 and batch_once.handlers(base) or {}
  local pc, started = base .. 'pc', as_text.us(math.ceil(q.now / 1000))
  function handlers.RPOPLPUSH(_, source, target)
    return pop(q, call, source, target)
  end
  function handlers.ZPOPMIN()
    return {}
  end
  function handlers.DEL(command, key, ...)
    if key == pc then return 0 end
    return call(command, key, ...)
  end
  function handlers.HMSET(command, key, field, value, ...)
    if field ~= 'processedOn' then return call(command, key, field, value, ...) end
    if not q.charged then return call(command, key, field, started, 'departure', q.at, ...) end
    return call(command, key, field, started, 'departure', q.at, 'charged', q.charged, ...)
  end
  return handlers
end

-- How much of a limit conforms now: ROOM_PER_JOB for each job, or just enough if each costs 1; 0 if not even that.
local function room_of(part, jobs)
  local l, most = part.l, (part.l.burst or part.l.limit) - part.l.kept
  for _, room in ipairs({ math.min(most, jobs * ROOM_PER_JOB), jobs }) do
    if room <= most and l.verbs.earliest(part.s, l, room + l.kept) <= 0 then return room end
  end
  return 0
end

-- The meter, brought up to now; nil if the gate is needed: more has changed than a departure changes, or it is time to
-- look for jobs that bypass the meter.
local function open_meter(q, call)
  local shape, key = call.holds, q.base .. 'meta:meter'
  local m = meter.open(key, q.now, shape, run_id(), call.horizon)
  if m.reset or meter.foreign_due(m, q.now) then return nil end
  q.slot_before = m.origin + math.ceil(m.last)
  meter.note_horizon(m, call.horizon, q.now)
  return m
end

-- All of them depart now, and some may cost nothing under some limit.
local function text_of_charge(q, call)
  local rules = charged.rules(call.holds.rules_at, call.holds.groups_at)
  return charged.text(rules, not q.meter and charged.start_by(q.parts, q.now, tonumber(call.memo_ms)))
end

-- call: base, key of the shape, jobs wanted, grant and memo_ms as in gate/departure, horizon µs; holds, as ends/quick-path
-- returns it. Nil if what holds the jobs needs the gate: a limit that is not simply enforced, one of places, which the
-- ending jobs give back, or one that is used up; or if this call was sent before, and its grant is remembered.
local function open(call)
  local base, limits = call.base, call.holds.limits
  if (limits and queue_limits.are_limited(limits)) or grants.recall(base, call.grant) then return nil end
  local time = redis.call('TIME')
  local q = { base = base, time = time, now = time[1] * 1000000 + time[2], at = as_text.time(time), jobs = {} }
  if call.holds.interval then
    q.meter = open_meter(q, call)
    if not q.meter then return nil end
  end
  q.parts = limits and queue_limits.open(call.holds, base, q.now) or {}
  for _, part in ipairs(q.parts) do
    part.room, part.total = part.l.plain and room_of(part, call.wanted) or 0, 0
    if part.room <= 0 then return nil end
  end
  if limits then q.charged = text_of_charge(q, call) end
  q.heads = redis.call('LRANGE', base .. 'wait', -call.wanted - 1, '-1')
  q.redis = hooked_redis(redis, handlers_of(q, base, call.wanted))
  return q
end

-- Whether the next job may be fetched now. If it is not a plain job of the wait list, the gate decides.
local function admits(q)
  local id = q.heads[#q.heads]
  if not id or string.sub(id, 1, 2) == '0:' then return false end
  if q.next == id then return true end
  local cost, deferred, costs, deadline = job_options.cost_of_job(q.base .. id)
  if deferred or (deadline and deadline < q.now) then return false end
  if q.meter and meter.slot(q.meter, cost, 0) > q.meter.now then return false end
  for _, part in ipairs(q.parts) do
    part.asked = queue_limits.cost(part.l, cost, costs)
    if part.asked > part.room then return false end
  end
  q.next, q.cost = id, cost
  return true
end

-- Charges what was taken, before the gate takes over or everything is stored.
local function charge(q)
  for _, part in ipairs(q.parts) do
    if part.total > 0 then
      part.l.verbs.charge(part.s, part.l, part.total, 0)
      part.charged = true
    end
  end
end

-- Roughly when the i-th job from now on conforms (µs), even if it has not arrived; nil if unknown.
local function slot_of(q, i)
  if i > 1 and #q.parts > 0 then return nil end
  local wait, m = 0, q.meter
  for _, part in ipairs(q.parts) do wait = math.max(wait, part.l.verbs.earliest(part.s, part.l, 1 + part.l.kept)) end
  if m then wait = math.max(wait, bucket.nth_slot(m, i, m.mean_cost, m.mean_cost, m.now) - m.now) end
  return q.now + math.ceil(wait)
end

-- What holds the head from now on, as in gate/held: with room in the meter, only that every worker is busy.
local function note_holds(q, meter_key)
  local waiting = q.meter and (#q.heads > 0 or redis.call('LLEN', q.base .. 'wait') > 0
    or redis.call('ZCARD', q.base .. 'prioritized') > 0)
  held.note(meter_key, q.now, waiting and 'rate' or '', waiting and slot_of(q, 1), q.meter and q.meter.held)
end

-- Stores the charges and the grant, if the gate is not needed. began: as in meter/pace
local function save(q, call)
  local count, meter_key, m = #q.jobs, q.base .. 'meta:meter', q.meter
  note_holds(q, meter_key)
  local reach, span = queue_limits.reach(q.parts, call.horizon, tonumber(call.memo_ms), q.now)
  local function slots(i) return slot_of(q, i) end
  sleepers.hand_on(q.base, call.caller, q.now, span, sleepers.sooner(slots, reach - span))
  if count == 0 then return end
  queue_limits.save(q.parts, q.base, false)
  if m then
    local total = pace.total(q.base, count)
    if call.holds.capacity then m.pace = pace.noted(m.pace, count, q.now, total, call.began) end
    meter.save(meter_key, m)
  else
    pace.count(q.base, count, q.now, call.began)
  end
  grants.keep(q.base, call.grant, call.memo_ms, q.jobs, q.slot_before, m and m.seq, q.at)
end

-- Ends jobs where only a rate and limits can hold the next ones: fetches without the gate as long as these conform. call:
-- as in lua/verbs/exchange. Returns the reply; or nil and the argument at which the rest begins.
local function end_conforming(call)
  local quick, at = open(call), ends.FIRST
  if not quick then return nil, at end
  delay_clock.knows(call.base, true, quick.now)
  while at <= #exchanged.argv do
    local wants = end_kind(exchanged.argv[at + 5]).wants and not exchanged.dry
    if wants and not admits(quick) then break end
    ends.exchange(at, quick.redis)
    at = at + ends.FIELDS
  end
  charge(quick)
  wake.touched()
  if at <= #exchanged.argv then
    call.now, call.fetched, call.meter, call.limits = quick.now, quick.jobs, quick.meter, #quick.parts > 0 and quick.parts or nil
    return nil, at
  end
  save(quick, call)
  -- If no job was looked for, one other than expected was next, or none may start, the worker asks for jobs.
  local answer = exchanged.last and not quick.displaced and quick_answer.reply(exchanged.base, exchanged.results, exchanged.last, quick.time)
  return answer and answer[5] ~= 'halted' and answer or { 1, as_text.us(quick.now), exchanged.results }
end

return end_conforming
