local refusals = use 'admission/refusals'
local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local end_kind = use 'ends/kind'
local quick_path = use 'ends/quick-path'
local grants = use 'gate/grants'
local held = use 'gate/held'
local sleepers = use 'gate/sleepers'
local wake = use 'gate/wake'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
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
local shapes = use 'shape/shapes'

-- If only a rate and limits may hold the jobs of a queue, and the next ones conform now, or if only groups may hold
-- them (groups/queue-groups), BullMQ's script fetches the next jobs directly, as in ends/quick-path: the gate is not
-- set up, and the reply is BullMQ's.
--   q.time, q.now, q.at   when all of them depart: Redis's reply to TIME, µs, and these as text
--   q.jobs          departed jobs, as in gate/grants
--   q.redis         the `redis` of BullMQ's script
-- Under a rate and limits:
--   q.meter         with a rate; q.slot_before is the last slot granted before (µs)
--   q.charged       what is kept with each job under limits (limits/charged)
--   q.parts         the limits, as in limits/queue-limits; for each
--     part.room     units that conform together now; they are charged all at once, at the end
--     part.asked    units that the next job takes
--     part.total    units taken
--   q.heads         ids of the wait list, one more than requested, the next one last
--   q.next          the job that conforms now, and q.cost: only that one may be fetched
-- Among groups:
--   q.g             the groups
--   q.pick          the chosen job of a group, until it has departed; q.score is that of the last one
--   q.charged_of    what is kept with it under limits of its group and keys (limits/charged)
local ungated = {}

-- Nil if this call was sent before, and its grant is remembered.
local function begin(call)
  if grants.recall(call.base, call.grant) then return nil end
  local time = redis.call('TIME')
  return { base = call.base, time = time, now = time[1] * 1000000 + time[2], at = as_text.time(time), jobs = {} }
end

-- Handlers (redis/hooked-redis) for BullMQ's scripts, which find q.next or q.pick.
local function handlers_of(q, wanted)
  local started = as_text.us(math.ceil(q.now / 1000))
  local handlers = wanted > 1 and batch_once.handlers(q.base) or {}
  local function start() return started, q.at, q.pick and q.charged_of(q.pick) or q.charged end
  return grants.handle(handlers, q.base, start, function() return true end)
end

-- BullMQ's reply for the last job that was looked for; nil if none was, or if none may start: then the worker asks.
local function answer_of(q)
  local answer = exchanged.last and quick_path.reply(q.time)
  return answer and answer[5] ~= 'halted' and answer or nil
end

-- Under a rate and limits.

-- A mean job that takes more units than this makes the gate necessary sooner.
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

local function conforming_handlers(q, wanted)
  local call, handlers = redis.call, handlers_of(q, wanted)
  function handlers.RPOPLPUSH(_, source, target)
    return pop(q, call, source, target)
  end
  function handlers.ZPOPMIN()
    return {}
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

-- The meter, brought up to now. Nil if the gate is needed: more has changed than a departure changes, or it is time to
-- look for jobs that bypass the meter.
local function open_meter(q, call)
  local shape, key = call.holds, q.base .. 'meta:meter'
  local m = meter.open(key, q.now, shape, run_id(), call.horizon)
  if m.reset or meter.foreign_due(m, q.now) then return nil end
  if shape.ramp_up and (m.held[1] == 'pause' or shapes.has_rested(shape, m, q.now)) then return nil end
  q.slot_before = meter.time(m, m.last)
  meter.note_horizon(m, call.horizon, q.now)
  return m
end

-- All of them depart now, and some may cost nothing under some limit.
local function text_of_charge(q, call)
  local rules = charged.rules(call.holds)
  return charged.text(rules, not q.meter and charged.start_by(q.parts, q.now, tonumber(call.memo_ms)))
end

-- Nil if the gate is needed: for a limit that is not simply enforced, a limit of places, which the ending jobs give
-- back, a pool, or a used-up limit.
local function open_conforming(call)
  local base, limits = call.base, call.holds.limits
  local q = not (limits and (queue_limits.are_limited(limits) or call.holds.pools)) and begin(call)
  if not q then return nil end
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
  q.redis = hooked_redis(redis, conforming_handlers(q, call.wanted))
  return q
end

-- Whether the next job may be fetched now. For any but a plain job of the wait list, the gate decides.
local function admits(q)
  local id = q.heads[#q.heads]
  if not id or string.sub(id, 1, 2) == '0:' then return false end
  if q.next == id then return true end
  local cost, deferred, costs, deadline = job_options.cost_of_job(q.base .. id)
  if deferred or (deadline and deadline < q.now) then return false end
  if q.meter and meter.start(q.meter, cost, 0) > q.now then return false end
  for _, part in ipairs(q.parts) do
    part.asked = queue_limits.cost(part.l, cost, costs)
    if part.asked > part.room then return false end
  end
  q.next, q.cost = id, cost
  return true
end

-- Charges the taken units, before the gate takes over or everything is stored.
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
  if m then wait = math.max(wait, meter.offset(m, bucket.nth_slot(m, i, m.mean_cost, m.mean_cost, m.now))) end
  return q.now + math.ceil(wait)
end

-- What holds the head from now on, as in gate/held: with room in the meter, only busy workers do.
local function note_holds(q, meter_key)
  local waiting = q.meter and (#q.heads > 0 or wake.waits(q.base))
  held.note(meter_key, q.now, waiting and 'rate' or '', waiting and slot_of(q, 1), q.meter and q.meter.held)
end

-- Stores the charges and the grant, if the gate is not needed.
local function save_conforming(q, call)
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

-- Ends jobs where only a rate and limits can hold the next ones: fetches without the gate as long as these conform.
-- call: as in gate/departure, with the jobs wanted, and holds, the shape, as ends/quick-path returns it. Returns the
-- reply; or nil and the argument at which the rest begins.
function ungated.end_conforming(call)
  local q, at = open_conforming(call), ends.FIRST
  if not q then return nil, at end
  delay_clock.knows(call.base, true, q.now)
  while at <= #exchanged.argv do
    local wants = end_kind(exchanged.argv[at + 5]).wants and not exchanged.dry
    if wants and not admits(q) then break end
    ends.exchange(at, q.redis)
    at = at + ends.FIELDS
  end
  charge(q)
  wake.touched()
  if at <= #exchanged.argv then
    call.now, call.fetched, call.meter, call.limits = q.now, q.jobs, q.meter, #q.parts > 0 and q.parts or nil
    return nil, at
  end
  save_conforming(q, call)
  -- If an unexpected job was next, the worker asks for jobs.
  return not q.displaced and answer_of(q) or { 1, as_text.us(q.now), exchanged.results }
end

-- Among groups.

-- Whether a worker other than the caller sleeps at that time (µs, text): then the gate decides about the rest.
local function others_sleep(base, worker, at)
  local asleep = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', at, '+inf', 'LIMIT', '0', '2')
  return #asleep > 1 or (asleep[1] and asleep[1] ~= worker)
end

-- The next job of a group that may go now. The gate decides about jobs without a group.
local function choose(q)
  for _ = 1, q.g.STALE do
    local pick = q.g:pick(q.now, q.now)
    if not pick or pick.from ~= 'group' then return nil end
    if q.g:take(pick) then return pick end
  end
  return nil
end

-- The options of a job and its deferred failure, nil if it has none, from its hash.
local function fields_of(hash)
  local options, deferred
  for i = 1, #hash, 2 do
    local name = hash[i]
    if name == 'opts' then options = hash[i + 1] elseif name == 'defa' then deferred = hash[i + 1] end
  end
  return options, deferred
end

-- The chosen job has departed. fields: its hash. A job past its deadline is failed. Returns its hash.
local function left(q, key, fields)
  local pick = q.pick
  q.pick = nil
  if not pick.cost then
    local options, deferred = fields_of(fields)
    local cost, _, deadline = job_options.cost(options)
    pick.cost, pick.deferred = cost, deferred
    pick.deadline = deadline and deadline * 1000
  end
  local late = not pick.deferred and pick.deadline and math.max(q.now, pick.slot) > pick.deadline
  if late then
    job_options.expire(q.base, pick.id, pick.deadline)
    fields = redis.call('HGETALL', key)
  end
  if not q.g:is_paced(pick.deferred, pick.deadline) then pick.bucket = nil end
  q.g:served(pick, q.now, pick.cost, not (pick.deferred or late))
  q.jobs[#q.jobs + 1] = { pick.id, pick.number }
  return fields
end

local function group_handlers(q)
  local base, call = q.base, redis.call
  local handlers = q.g:handle(handlers_of(q, q.g.most), redis)
  function handlers.RPOPLPUSH()
    q.pick = choose(q)
    return false
  end
  function handlers.ZPOPMIN()
    if not q.pick then return {} end
    q.score = q.pick.number
    return { q.pick.id, q.score }
  end
  function handlers.HGETALL(command, key)
    local fields = call(command, key)
    if not q.pick or key ~= base .. q.pick.id then return fields end
    return left(q, key, fields)
  end
  return handlers
end

-- Nil if the gate is needed: there is more to do than let jobs depart.
local function open_in_groups(call, shape)
  local base, q = call.base, begin(call)
  if not q or refusals.due(base, q.now) > 0 or others_sleep(base, call.caller, q.at) then return nil end
  local g = queue_groups.open(base, shape, q.now)
  -- Redis's clock has gone back.
  if g.changed then return nil end
  g.most, g.trusts, g.limits = call.wanted, true, group_limits_of(base, shape, q.now)
  g.lock_ms = tonumber(call.memo_ms)
  local rules = g.limits and charged.rules(shape)
  -- A late or failing job is not charged, but its charge is never read, as it does not run.
  function q.charged_of(pick)
    if not pick.parts then return nil end
    return charged.text(rules, not pick.bucket and charged.start_by(pick.parts, q.now, tonumber(call.memo_ms)))
  end
  g:begin()
  g:plain()
  if g.plain_id or g.sorts_more then
    g:save()
    return nil
  end
  local ids = {}
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do ids[#ids + 1] = exchanged.argv[at] end
  g:expect_ends(ids)
  q.g = g
  q.redis = hooked_redis(redis, group_handlers(q))
  return q
end

-- Stores changes. Returns whether a group has a free place for which nothing was fetched.
local function save_groups(q, call)
  local freed = false
  for _, id in ipairs(exchanged.unseen) do freed = q.g:left(id) or freed end
  q.g:save()
  if #q.jobs > 0 then
    grants.keep(q.base, call.grant, call.memo_ms, q.jobs, nil, nil, q.at)
    pace.count(q.base, #q.jobs, q.now, call.began)
  end
  return freed
end

-- Ends jobs where only groups can hold the next ones: the groups choose without the gate. call: as above; shape: as
-- ends/quick-path returns it. Returns the reply; nil if the gate is needed, and nothing was done.
function ungated.end_in_groups(call, shape)
  local q, base = open_in_groups(call, shape), exchanged.base
  if not q then return nil end
  delay_clock.knows(base, true, q.now)
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do
    local came = ends.exchange(at, q.redis)
    if came then came[5] = q.score end
  end
  if save_groups(q, call) then wake.one(base) end
  wake.touched()
  local answer = answer_of(q)
  -- BullMQ's script does not see held jobs.
  local waits = answer and answer[5] == 'empty' and redis.call('EXISTS', base .. 'prioritized', base .. 'wait') > 0
  if not answer or waits then return { 1, as_text.us(q.now), exchanged.results } end
  if answer[5] == 'full' or answer[5] == 'empty' then
    held.note(base .. 'meta:meter', q.now, answer[5] == 'full' and wake.waits(base) and 'workers' or '')
  end
  -- A worker that takes the marker now would find no job.
  if answer[5] == 'empty' and #q.jobs > 0 then redis.call('ZREM', base .. 'marker', '0') end
  return answer
end

return ungated
