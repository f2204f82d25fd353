--[[
  Continues a simulation: a scratch queue in virtual time. Lets jobs depart as the meter, the limits and the gate allow,
  and runs the admission for each arriving job.
  KEYS
    [1]  …:meta:shape of the scratch queue
  ARGV
    [1]  the shape, JSON: field -> value, with the first call; later ''
    [2]  JSON: first (number of the first arrival), steps (about how many it may take), budgetMs (after which it
         takes no more; absent: any), last (whether no further arrivals follow), places (jobs that may run at once;
         absent: any number), jobUs (how long one runs), ttlMs (after which a key expires by itself), startUs and
         sliceUs (the time slices whose longest queue is reported); with the first call also groups (the settings of
         single groups, as in meta:groups:settings)
    [3]  JSON: the arrivals in their order: µs, or {µs, cost, options (JSON, '' for none), priority, delay ms, and the
         group, {id, priority}, or nothing}
  Returns {
    1 arrivals taken, 2 number and slot (µs) of each departed job, 3 number and status of each refused one
    (admission/admission), 4 numbers of jobs that overflow dropped, 5 slice, longest queue in it and its length at
    the end, for each slice that is over, 6 longest queue so far, 7 starts so far that waited for a place, 8 1 if all
    is done, 9 steps taken
  }
]]
local admission = use 'admission/admission'
local new_job = use 'admission/new-job'
local overflow = use 'admission/overflow'
local plan = use 'admission/plan'
local gates = use 'gate/gates'
local sleepers = use 'gate/sleepers'
local wake = use 'gate/wake'
local group_later = use 'groups/later'
local queue_groups = use 'groups/queue-groups'
local queue_limits = use 'limits/queue-limits'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'
local run_id = use 'redis/run-id'
local shapes = use 'shape/shapes'
local virtual = use 'simulate/virtual'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local options = cjson.decode(ARGV[2])
virtual.ttl_ms = options.ttlMs
local wait, prioritized, delayed = base .. 'wait', base .. 'prioritized', base .. 'delayed'
local meter_key, state_key = base .. 'meta:meter', base .. 'meta:simulation'
local departed, refused, dropped, slices = {}, {}, {}, {}

-- State between two calls:
--   wake      µs, when a worker asks next; nil if none sleeps
--   due       µs, of the first delayed job
--   blocked   whether jobs wait and no place is free
--   ends      when the running jobs end, µs, and running their numbers, in the same order
--   waiting, depth, hashes   waiting jobs, jobs that hold a place in the queue, jobs with further stored data
local function begin()
  local declared = {}
  -- A simulation has no pauses, and begins in the middle of the traffic.
  for field, value in pairs(cjson.decode(ARGV[1])) do
    if field ~= 'rampUp' then declared[field] = { value = value, by = '' } end
  end
  redis.call('HSET', key, 'born', 1, 'rev', 0)
  shapes.resolve(key, base, declared, {}, options.startUs)
  for group, text in pairs(options.groups) do
    redis.call('HSET', base .. 'meta:groups:settings', group, text)
    -- As in lua/verbs/set-group.lua.
    local fields = cjson.decode(text).fields
    if fields.concurrency or fields.order then redis.call('HSET', base .. 'meta:groups', 'tracked', 1) end
    if fields.order then
      redis.call('HSET', key, 'wholeGroups', 1)
      shapes.revise(key, 0)
    end
    for _, entry in pairs(fields) do
      if entry['until'] then redis.call('ZADD', base .. 'meta:groups:ends', 'LT', as_text.us(entry['until'] * 1000), group) end
    end
  end
  return {
    ends = {}, running = {}, waiting = 0, depth = 0, hashes = 0, peak = 0, slice = 0, slice_peak = 0, counter = 0,
    place_bound = 0, blocked = false,
  }
end

local s = ARGV[1] ~= '' and begin() or cmsgpack.unpack(redis.call('GET', state_key))
local shape = shapes.load(key, base, options.startUs)
virtual.keep(meter_key)
local horizon = math.floor(shape.horizon)
local paced = shape.interval and shape.mode ~= 'off'
local lends_places = shape.mode ~= 'off' and queue_limits.are_limited(shape.limits)
local places = math.min(options.places or math.huge, tonumber(shape.concurrency) or math.huge)
-- Groups in a simulation: `touched` are groups with changed keys, `lanes` the lanes of these.
local tenants = { used = shape.groups and shape.mode ~= 'off', touched = {}, lanes = {} }

-- Adds the keys of groups that expire by themselves.
function tenants.keys(keys)
  for _, name in ipairs({
    '', ':ready', ':limited', ':full', ':paused', ':tags', ':stale', ':held', ':settings', ':ends', ':later', ':running',
    ':common',
  }) do
    keys[#keys + 1] = base .. 'meta:groups' .. name
  end
  for group in pairs(tenants.touched) do
    for _, kind in ipairs({ 'jobs:', 'held:', 'lanes:' }) do keys[#keys + 1] = base .. 'meta:group:' .. kind .. group end
  end
  if not shape.lanes then return keys end
  for _, name in ipairs({ 'lanes', 'lanes:held', 'lanes:places', 'lines', 'lines:due' }) do keys[#keys + 1] = base .. 'meta:' .. name end
  for lane in pairs(tenants.lanes) do keys[#keys + 1] = base .. 'meta:lane:jobs:' .. lane end
  for _, cell in ipairs(redis.call('HKEYS', base .. 'meta:lines')) do
    for _, kind in ipairs({ 'line:', 'line:tags:' }) do keys[#keys + 1] = base .. 'meta:' .. kind .. cell end
  end
  return keys
end

tenants.hold_places = tenants.used
  and (shape.has_places or shape.whole_groups or cjson.decode(shape.groups).concurrency ~= nil
    or redis.call('HGET', base .. 'meta:groups', 'tracked') == '1')
local keeps_locks = lends_places or tenants.hold_places
local counts_places = places < math.huge or keeps_locks

local function tell_slice()
  for _, value in ipairs({ s.slice, s.slice_peak, s.depth }) do slices[#slices + 1] = value end
end

local function note_depth(now, change)
  local slice = math.floor((now - options.startUs) / options.sliceUs)
  if slice > s.slice then
    tell_slice()
    s.slice, s.slice_peak = slice, s.depth
  end
  s.depth = s.depth + change
  s.slice_peak = math.max(s.slice_peak, s.depth)
  s.peak = math.max(s.peak, s.depth)
end

local function forget(id)
  if s.hashes > 0 then s.hashes = s.hashes - redis.call('DEL', base .. id) end
end

local function start(id, slot)
  departed[#departed + 1], departed[#departed + 2] = tonumber(id), slot
  forget(id)
  if not counts_places then return end
  local ends, at = slot + options.jobUs, #s.ends + 1
  while at > 1 and s.ends[at - 1] > ends do at = at - 1 end
  table.insert(s.ends, at, ends)
  table.insert(s.running, at, id)
  if keeps_locks then redis.call('SET', base .. id .. ':lock', '', 'PX', virtual.ttl_ms) end
end

-- Like gate/departure for a single sleeping worker. With estimated limits it may have to ask again at once: that takes
-- a timer and a round trip.
local ROUND_TRIP_US = 1000

local function sleep(gate, now)
  local planned = plan.new(gate, gate.next)
  local function slots(i) return plan.slot(planned, i) end
  local last = math.min(places - #s.ends, sleepers.batch_end(slots, 1, horizon))
  local soonest = now + (gate.limits and ROUND_TRIP_US or 1)
  s.wake = math.max(soonest, math.floor(slots(last) - horizon))
end

-- The bucket stays open from one request to the next: reading and storing it would be half of all the work. A read of
-- the meter's hash in between gets its current state.
local kept

local function open_bucket(now)
  if not paced then return nil end
  if kept then
    meter.pass(kept, now)
  else
    kept = meter.open(meter_key, now, shape, run_id(), horizon)
  end
  meter.note_horizon(kept, horizon, now)
  return kept
end

function virtual.settle()
  if not kept or not kept.changed then return end
  kept.changed = false
  meter.save(meter_key, kept)
end

-- A worker asks for as many jobs as there are places.
local function fetch_jobs(now)
  local was_blocked = s.blocked
  virtual.now, s.wake, s.blocked = now, nil, false
  local m = open_bucket(now)
  local gate = gates.new(shape, m, base, now, horizon)
  while s.waiting > 0 do
    if #s.ends >= places then
      s.blocked = true
      break
    end
    -- As in BullMQ's script: the wait list before the prioritized jobs.
    local id = gate.redis.call('RPOPLPUSH', wait, '')
    if not id and not gate.shut then id = gate.redis.call('ZPOPMIN', prioritized)[1] end
    if gate.shut then
      sleep(gate, now)
      break
    end
    -- Every group waits for the end of one of its jobs.
    if gate.idle then
      s.blocked = true
      break
    end
    local slot = math.ceil(gate.slot or now)
    if was_blocked and slot <= now then s.place_bound = s.place_bound + 1 end
    s.waiting = s.waiting - 1
    note_depth(now, -1)
    start(id, slot)
    if gate.pick then tenants.touched[gate.pick.group] = true end
  end
  if gate.groups then gate.groups:save() end
  if gate.limits then queue_limits.save(gate.limits, base, gate.shut) end
end

-- The events of virtual time.
local events = {}

-- A worker that finishes a job asks for the next; if it gives back a place of a limit, it wakes a sleeper.
function events.finish(now)
  table.remove(s.ends, 1)
  local id = table.remove(s.running, 1)
  if keeps_locks then redis.call('DEL', base .. id .. ':lock') end
  local g = tenants.hold_places and queue_groups.bare(base, shape)
  call_state.ended[id] = true
  local freed = g and g:left(id)
  if g then g:save() end
  if s.blocked or freed or (lends_places and s.waiting > 0) then fetch_jobs(now) end
end

-- group: {id, priority}, if it has one. Returns whether a sleeping worker is woken: all groups were held.
function events.place(id, priority, now, group)
  s.waiting = s.waiting + 1
  if shape.ageing_ms then redis.call('HSET', base .. id, 'queuedAt', as_text.us(now)) end
  if group or shape.lanes then
    local g = queue_groups.of(base, shape, now)
    local name, _, lane = g:place_of(id)
    g:insert(name, id, group and group[2] or priority, nil, false, lane)
    g:save()
    tenants.touched[name] = true
    if lane then tenants.lanes[lane] = true end
    return g.awaited
  elseif priority == 0 then
    redis.call('LPUSH', wait, id)
  else
    s.counter = s.counter + 1
    redis.call('ZADD', prioritized, as_text.exact(priority * 4294967296 + s.counter), id)
  end
  return tenants.used and redis.call('EXISTS', base .. 'meta:groups:ready') == 0
end

-- A worker asks for the new job, unless one sleeps until a slot, or no place is free.
function events.ask(now, wakes)
  if not wakes and (s.wake or s.blocked) then return end
  s.blocked = false
  fetch_jobs(now)
end

function events.note_due()
  local due = wake.first_due(base)
  s.due = due and math.floor(due) * 1000
end

function events.promote(now)
  local id = redis.call('ZPOPMIN', delayed)[1]
  local group, priority
  if tenants.used then group, priority = queue_groups.of_job(base, id) end
  if group then group_later.remove(base, group, id) end
  local number = tonumber(redis.call('HGET', base .. id, 'priority'))
  local wakes = events.place(id, number, now, group and { group, priority or 0 })
  events.note_due()
  events.ask(now, wakes)
end

function events.drop(ids, now)
  for _, id in ipairs(ids) do
    overflow.take_out(base, shape, id, ids.of and ids.of[id], ids.groups)
    dropped[#dropped + 1] = tonumber(id)
    forget(id)
    s.waiting = s.waiting - 1
    note_depth(now, -1)
  end
  if ids.groups then ids.groups:save() end
end

function events.arrive(number, now, cost, opts, priority, delay, group)
  virtual.now = now
  local terms = new_job.PLAIN
  if priority > 0 or delay > 0 then terms = { place = '', priority = priority, delay = delay } end
  group = tenants.used and group or nil
  local known = shape.refuses_closed and opts ~= '' and cmsgpack.pack(cjson.decode(opts)) or nil
  local new = { { cost = cost, terms = terms, group = group, options = known }, groups = queue_groups.of(base, shape, now) }
  local refusal, gone = admission.refusal(base, shape, now, new, overflow.choose)
  if refusal then
    refused[#refused + 1], refused[#refused + 2] = number, refusal[1]
    return
  end
  local id = string.format('%.0f', number)
  local kept = delay > 0 or (shape.overflow or 'reject') ~= 'reject' or shape.ageing_ms
  if opts ~= '' or kept then
    redis.call('HSET', base .. id, 'name', '', 'opts', opts == '' and '{}' or opts, 'priority', priority)
    redis.call('PEXPIRE', base .. id, virtual.ttl_ms)
    s.hashes = s.hashes + 1
  end
  local wakes = false
  note_depth(now, 1)
  if delay > 0 then
    s.counter = s.counter + 1
    redis.call('ZADD', delayed, as_text.exact((math.floor(now / 1000) + delay) * 4096 + s.counter % 4096), id)
    if group then group_later.add(base, group[1], id) end
    events.note_due()
  else
    wakes = events.place(id, priority, now, group)
  end
  if gone then events.drop(gone, now) end
  if delay == 0 then events.ask(now, wakes) end
end

-- Handles the next event up to `at`; events at the time of an arrival come before it. False if there is none.
function events.advance(at)
  local ends, due, asks = s.ends[1] or math.huge, s.due or math.huge, s.wake or math.huge
  local now = math.min(ends, due, asks)
  if now > at or now == math.huge then return false end
  if ends == now then events.finish(now) elseif due == now then events.promote(now) else fetch_jobs(now) end
  return true
end

local arrivals, taken, steps = cjson.decode(ARGV[3]), 0, 0
-- Redis's clock is read once for this many steps.
local done, ends, LOOK = false, virtual.real_time() + (options.budgetMs or math.huge) * 1000, 8
while not done and steps < options.steps and (steps == 0 or steps % LOOK > 0 or virtual.real_time() < ends) do
  local arrival = arrivals[taken + 1]
  local at = type(arrival) == 'table' and arrival[1] or arrival
  if not arrival and not options.last then break end
  steps = steps + 1
  if not events.advance(at or math.huge) then
    if not arrival then
      done = true
      tell_slice()
    else
      if at == arrival then
        events.arrive(options.first + taken, at, 1, '', 0, 0)
      else
        events.arrive(options.first + taken, at, arrival[2], arrival[3], arrival[4], arrival[5], arrival[6])
      end
      taken = taken + 1
    end
  end
end
virtual.store(tenants.keys({ wait, prioritized, delayed, key, base .. 'meta' }))
redis.call('SET', state_key, cmsgpack.pack(s), 'PX', virtual.ttl_ms)
return { taken, departed, refused, dropped, slices, s.peak, s.place_bound, done and 1 or 0, steps }
