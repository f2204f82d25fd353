local ageing_open = use 'gate/ageing-open'
local grants = use 'gate/grants'
local queued_at_redis = use 'gate/queued-at-redis'
local wake = use 'gate/wake'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local charged = use 'limits/charged'
local limit_checks = use 'limits/checks'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'
local hooked_redis = use 'redis/hooked-redis'
local job_options = use 'shape/job-options'
local shapes = use 'shape/shapes'

local gates = {}

-- The gate: replaces `redis` for BullMQ's script while it looks for the next job. It lets a pop through only if the
-- head of the queue may depart; everything else in the script (above all the promotion of delayed jobs) happens as
-- usual. Once shut it stays shut for the call: a cheap job must not overtake the head.
--   gate.slot, gate.cost   of the job that was just let through; slot in µs on Redis's clock
--   gate.next              the slot that the refused head, gate.next_id, would get (µs), with gate.next_cost, and
--                          gate.costs in other units; gate.holds is why (gate/held)
--   gate.runs              whether the job at the head will run: one with a deferred failure will not
--   gate.deadline          when that job must have started (µs), if it has a deadline and its slot is certain
--   gate.horizon           how far ahead a slot may lie, µs
--   gate.span              the horizon that the caller uses when it goes to sleep, µs; nil if it is the same
--   gate.lock_ms           how long the caller's locks last; nil if no other queue can share the limits
--   gate.groups            the groups (groups/queue-groups), if the shape has them
--   gate.known             a picked job with all its fields known
--   gate.group             the group of the picked job, '' if it has none
--   gate.floor             the earliest slot that the group of the head allows, µs
--   gate.passable          whether only groups hold the jobs: a new one may depart before gate.next
--   gate.held              the head of a group that may not depart: group, id, tag, cost, costs, and the unit of the
--                          limit that holds it
--   gate.from, gate.from_at  the least tag of groups that may pass, and since when earlier ones are skipped, µs
--   gate.look_at           when to search the rest of the groups that may pass, µs
--   gate.costs_of          job -> its costs in units, for first jobs of groups, false if it has none
--   gate.idle              whether jobs wait, but none may depart before another ends or a pause does
--   gate.ageing            the order of ageing jobs (gate/ageing-open), if there are no groups
--   gate.order             the same, also with groups
--   gate.aged              the prioritized job that goes before the wait list
--   gate.tried             whether the script looked for a job at all (for a paused or maxed queue it does not)
local ESTIMATE_US = 5000000

-- The gate's handling of groups.
gates.groups = {
  -- How often all ready groups are searched, µs, if one call cannot search all of them.
  SEARCH_US = 1000000,
}

-- Returns the slot in µs on Redis's clock; second, if the bucket is enforced, the unrounded slot on the bucket's own
-- time; third, with limits, µs from now.
local function gate_slot_of_limits(gate, cost, costs)
  local shape, m, now = gate.shape, gate.meter, gate.now
  if not gate.reaches then
    gate.reaches, gate.limits = true, gate.limits or queue_limits.open(shape, gate.base, now)
    -- If other queues share the limits, jobs are granted as far ahead as there. A queue in shadow mode waits for none.
    if gate.lock_ms and shape.mode == 'enforce' then
      gate.horizon, gate.span = queue_limits.reach(gate.limits, gate.horizon, gate.lock_ms, now)
    end
  end
  if shape.pools and gate.groups then queue_limits.serve(gate.limits, gate.group) end
  local wait, estimated, name = queue_limits.wait(gate.limits, cost, costs)
  local enforced, not_before = shape.mode == 'enforce', math.max(shape.paused_until, gate.floor)
  local offset, paced = math.max(0, not_before - now), m and meter.offset(m, meter.slot(m, cost, not_before)) or 0
  if enforced then offset = math.max(offset, wait, paced) end
  if enforced then offset = queue_limits.open_from(gate.limits, m, offset) end
  gate.limit = wait > paced and name or nil
  -- Nothing is granted ahead on an estimate, which is soon checked again: a holder may die before its lease expires.
  if enforced and estimated then
    offset = math.max(math.min(offset, ESTIMATE_US), gate.horizon + 1)
    gate.deadline = nil
  end
  local slot = now + math.ceil(offset)
  if enforced then return slot, m and meter.after(m, offset), offset end
  if slot <= now + gate.horizon then
    local waits = wait > 0 or (m and meter.start(m, cost, 0) > now)
    if waits then gate.delayed_in_shadow = gate.delayed_in_shadow + 1 end
    if m then meter.charge_shadow(m, cost) end
  end
  return slot, nil, offset
end

local function gate_slot(gate, id)
  local cost, deferred, costs, deadline
  if gate.known then
    cost, deferred, costs, deadline = gate.known.cost, gate.known.deferred, gate.known.costs, gate.known.deadline
  else
    cost, deferred, costs, deadline = job_options.cost_of_job(gate.base .. id)
  end
  local shape, m = gate.shape, gate.meter
  gate.cost, gate.cost_us, gate.runs, gate.deadline = cost, 0, not deferred, not deferred and deadline
  gate.costs = costs
  if deferred or (deadline and deadline < gate.now) then return gate.now end
  if shape.limits and shape.mode ~= 'off' then return gate_slot_of_limits(gate, cost, costs) end
  -- A pause is an explicit command, not the meter's decision: it holds in every mode.
  local not_before = math.max(shape.paused_until, gate.floor)
  local slot = math.max(gate.now, not_before)
  if not m then return slot end
  if shape.mode == 'shadow' then
    if slot <= gate.now + gate.horizon then
      if meter.start(m, cost, 0) > gate.now then gate.delayed_in_shadow = gate.delayed_in_shadow + 1 end
      meter.charge_shadow(m, cost)
    end
    return slot
  end
  return meter.start(m, cost, not_before)
end

-- After a hard pause one job goes first. Its outcome opens the gate (lua/verbs/apply-feedback), or a timeout does: a
-- worker that died reports nothing, and neither do some failures. If the job goes back, another one follows
-- (ends/put-back).
local probes = {
  -- How far from either end of the wait list to search, since a list is slow in its middle; and how many jobs to try.
  REACH = 10000, TRIES = 8,
}

-- After a pause for evidence the probe is a job that was not refused yet, from anywhere behind the head: the jobs at
-- the head may all be as bad as the refused ones.
function probes.seeks(gate)
  return gate.shape.probe and string.sub(gate.shape.probe, 1, 5) == 'seek '
end

-- Tries jobs spread over `length` places. Returns the first one that was not refused yet, or nil. id_at: the job at a
-- place
function probes.find(gate, length, id_at)
  for try = 1, probes.TRIES do
    local place = (gate.now + math.floor(try * length / probes.TRIES)) % length
    local id = id_at(place)
    local plain = id and string.sub(id, 1, 2) ~= '0:'
    if plain and redis.call('HEXISTS', gate.base .. id, 'refused') == 0 then return id, place end
  end
end

-- The index in the list, and the end from which to search.
function probes.index(place, length)
  if place < probes.REACH then return -1 - place, -1 end
  return math.min(place, length - 1) - probes.REACH, 1
end

function probes.in_list(gate, list)
  local length = redis.call('LLEN', list)
  local reach = math.min(length, 2 * probes.REACH)
  if reach == 0 then return nil end
  local id, place = probes.find(gate, reach, function(at)
    return redis.call('LINDEX', list, (probes.index(at, length)))
  end)
  if id then return id, select(2, probes.index(place, length)) end
end

function probes.in_set(gate, set)
  local length = redis.call('ZCARD', set)
  return length > 0 and (probes.find(gate, length, function(at) return redis.call('ZRANGE', set, at, at)[1] end))
end

-- Returns the earliest slot of a job that would have `slot` without the probe; second, if it is a probe, how long (ms)
-- to wait for its outcome.
function probes.slot(gate, slot)
  local state, value = string.match(gate.shape.probe, '^(%a+) (%d+)')
  if state == 'armed' or state == 'seek' then return slot, tonumber(value) end
  if tonumber(value) > gate.now then return math.max(slot, tonumber(value)) end
  redis.call('HDEL', gate.base .. 'meta:shape', 'probe')
  gate.shape.probe = false
  -- Workers report every successful call while they know of a probe.
  gate.shape.revision = shapes.revise(gate.base .. 'meta:shape')
  gate.shape.identity = gate.shape.id .. ':' .. gate.shape.revision
  return slot
end

function probes.send(gate, slot, patience_ms, id)
  local state = probes.seeks(gate) and 'sought ' or 'out '
  gate.shape.probe = state .. as_text.us(math.ceil(slot) + patience_ms * 1000) .. ' ' .. as_text.us(patience_ms) .. ' ' .. id
  redis.call('HSET', gate.base .. 'meta:shape', 'probe', gate.shape.probe)
  shapes.revise(gate.base .. 'meta:shape', 0)
end

-- Lets the job at the head through, with its slot, or shuts the gate.
local function gate_admits(gate, id)
  local slot, exact, offset = gate_slot(gate, id)
  if gate.deadline and slot > gate.deadline then
    job_options.expire(gate.base, id, gate.deadline)
    gate.slot, gate.runs = gate.now, false
    return true
  end
  local patience_ms, unprobed = nil, slot
  if gate.shape.probe and gate.runs then slot, patience_ms = probes.slot(gate, slot) end
  local pick = gate.runs and gate.known
  local ends = pick and slot > gate.now and slot <= gate.now + gate.horizon and not gate.groups:is_open(pick, slot)
  if slot > gate.now + gate.horizon or ends then
    -- Others may go from then on, when its schedule has closed.
    gate.shut, gate.next, gate.next_cost, gate.next_id = true, ends and slot + gate.horizon or slot, gate.cost, id
    gate.holds = gate.limit and 'limits:' .. gate.limit or 'rate'
    if slot > unprobed or gate.shape.paused_until >= slot - 1 then gate.holds = 'pause' end
    return false
  end
  gate.slot = slot
  if patience_ms then probes.send(gate, slot, patience_ms, id) end
  if offset then queue_limits.charge(gate.limits, offset, gate.base .. id, gate.lock_ms) end
  if exact then
    local m = gate.meter
    meter.charge(m, gate.cost, exact)
    gate.cost_us = bucket.ceil(gate.cost * m.interval)
  end
  return true
end

-- The state of the gate after a refused job.
function gates.groups.refusal(gate)
  return {
    shut = true, next = gate.next, next_cost = gate.next_cost, next_id = gate.next_id, costs = gate.costs,
    holds = gate.holds,
  }
end

-- The unit of the queue's limit with that name; nil if it has none, or if there is no such limit.
function gates.groups.unit(parts, name)
  for _, part in ipairs(parts or {}) do if part.l.name == name then return part.l.unit end end
end

-- Holds a head that has not been refused: a plan (admission/plan) requires it.
function gates.groups.hold(gate, planned)
  local first = planned.first
  if gate.held or not gate.groups or planned.floors or not first.id then return end
  local group, tag = gate.groups:next_in_line()
  gate.held = {
    group = group, id = first.id, tag = tag, cost = first.cost, costs = first.costs,
    unit = gates.groups.unit(planned.limits, planned.limit),
  }
end

-- Whether the next job of a group takes none of the unit. Costs are read once: a call may start many jobs.
function gates.groups.is_free(gate, group, unit)
  local id = gate.groups:head(group)
  if not id then return false end
  gate.costs_of = gate.costs_of or {}
  local costs = gate.costs_of[id]
  if costs == nil then
    costs = select(3, job_options.cost_of_job(gate.base .. id)) or false
    gate.costs_of[id] = costs
  end
  return costs and costs[unit] == 0
end

-- Where the search for groups that pass continues. A search that did not end in one call continues in the next ones;
-- earlier groups, whose jobs may have changed, are searched again after a while.
function gates.groups.search_from(gate)
  if gate.from then return gate.from end
  local text = redis.call('HGET', gate.base .. 'meta:groups', 'search')
  local from, at = string.match(text or '', '^(%S+) (%d+)$')
  if from and tonumber(at) <= gate.now and gate.now - tonumber(at) < gates.groups.SEARCH_US then
    gate.from, gate.from_at = from, tonumber(at)
  else
    gate.from, gate.from_at = '-inf', gate.now
  end
  return gate.from
end

-- Calls found(group) for ready groups whose next job takes none of the unit, until it returns true. Bounded: the next
-- calls handle the rest of many groups.
function gates.groups.search(gate, held, unit, found)
  local groups, from = gate.groups, nil
  groups:store_tags()
  local ready = groups:key('ready')
  local many = redis.call('ZCARD', ready) > groups.TRIES
  from = many and gates.groups.search_from(gate) or gate.from or '-inf'
  local function part(start)
    local rows = redis.call('ZRANGEBYSCORE', ready, start, '+inf', 'WITHSCORES', 'LIMIT', 0, groups.TRIES)
    for i = 1, #rows, 2 do
      if rows[i] ~= held and gates.groups.is_free(gate, rows[i], unit) and found(rows[i]) then
        gate.from = rows[i + 1]
        return true
      end
    end
    return false, #rows == 2 * groups.TRIES and rows[#rows]
  end
  local ended, last = part(from)
  if not ended and not many and from ~= '-inf' then ended, last = part('-inf') end
  if not ended then gate.from = last and (last == from and '(' .. last or last) or '-inf' end
  if not many then return ended end
  gate.look_at = not ended and (last and gate.now or gate.now + gates.groups.SEARCH_US) or nil
  local text = gate.from ~= '-inf' and gate.from .. ' ' .. as_text.us(gate.from_at or gate.now) or ''
  redis.call('HSET', gate.base .. 'meta:groups', 'search', text)
  return ended
end

-- Whether a group whose hold ends may go before the held head: the one that a unit holds back lets it pass, or it is
-- before that one in line, and takes less. by_turn: only the latter
function gates.groups.goes_before(gate, group, by_turn)
  local held, groups = gate.held, gate.groups
  local id = groups:head(group)
  if not id or string.sub(id, 1, 2) == '0:' then return false end
  local cost, deferred, costs = job_options.cost_of_job(gate.base .. id)
  if held.unit and (costs and costs[held.unit] or 1) == 0 then return not by_turn end
  local plain_first = groups.defaults.ungrouped == 'first'
  if plain_first and held.group == '' then return false end
  if not (plain_first and group == '') then
    local tag = tonumber(groups:may_have('tags') and redis.call('ZSCORE', groups:key('tags'), group) or nil)
    -- As groups.enter.
    if not tag or tag <= groups.v then tag = math.max(groups.v, groups.t) + 1 end
    if tag > held.tag then return false end
  end
  return deferred or wake.takes_less(cost, costs, { held.id, held.cost, held.costs or {} })
end

-- The first slot by `latest` of a group that goes before the held head by its turn, µs; math.huge if none does.
function gates.groups.first_before(gate, latest)
  local groups = gate.groups
  if not groups:may_have('limited') then return math.huge end
  local to = as_text.us(latest)
  local rows = redis.call('ZRANGEBYSCORE', groups:key('limited'), '-inf', to, 'WITHSCORES', 'LIMIT', 0, groups.DUE)
  for i = 1, #rows, 2 do if gates.groups.goes_before(gate, rows[i], true) then return tonumber(rows[i + 1]) end end
  return math.huge
end

-- If the job of a group waits for a limit of the queue in a unit, jobs of other groups that take none of it go before
-- it: they do not delay it. Like all ready groups, they may go ahead up to `latest`. Returns the choice, or nil.
function gates.groups.pass(gate, held, latest)
  local groups, unit = gate.groups, gates.groups.unit(gate.limits, gate.limit)
  gate.held.unit = unit
  if not unit then return nil end
  local refusal, passed = gates.groups.refusal(gate), nil
  -- The limits are checked again for other jobs. Each limit that one of them waits for has to call this queue.
  for _, part in ipairs(gate.limits) do part.awaited = part.awaited or limit_checks.wait(part) > 0 end
  local before = gates.groups.first_before(gate, latest)
  groups:release_due('limited', latest)
  gates.groups.search(gate, held, unit, function(group)
    local pick = groups:try(group, groups:ready_tag(group), latest)
    if not pick or (pick.from == 'group' and not groups:take(pick)) then return false end
    gate.shut, gate.floor, gate.known, gate.group = false, pick.slot, pick.cost and pick or nil, group
    if gate_admits(gate, pick.id) then
      passed = pick
      return true
    end
    if pick.from == 'group' then groups:put_back(pick) end
    if gate.next < refusal.next then refusal = gates.groups.refusal(gate) end
    return false
  end)
  if passed then return passed end
  for field, value in pairs(refusal) do gate[field] = value end
  gate.look_at = math.min(gate.look_at or math.huge, before)
  return nil
end

-- When a worker that waits for the head of a group has to ask for another group: once its slot, its pause or its
-- temporary settings end (µs); math.huge if none may go before the head.
function gates.groups.next_end(gate)
  local groups, held, first = gate.groups, gate.held, gate.look_at or math.huge
  if not held then return first end
  local ahead = held.unit and gate.horizon or 0
  for _, ends in ipairs({ { 'limited', ahead }, { 'paused', 0 }, { 'ends', 0 } }) do
    local set = ends[1]
    local has = groups:may_have(set)
    if set == 'ends' then has = groups.has_settings end
    local rows = has and redis.call('ZRANGE', groups:key(set), 0, groups.DUE - 1, 'WITHSCORES') or {}
    for i = 1, #rows, 2 do
      local at = tonumber(rows[i + 1]) - ends[2]
      if at >= first then break end
      -- Behind that many others, the caller asks again.
      if i + 1 == 2 * groups.DUE or gates.groups.goes_before(gate, rows[i]) then
        first = at
        break
      end
    end
  end
  return first
end

-- Chooses the job that goes next, and lets it through or shuts the gate. Returns the choice, or nil.
function gates.groups.pick(gate)
  local m, groups, soon, slot = gate.meter, gate.groups, math.max(gate.now, gate.shape.paused_until), 0
  if m and gate.shape.mode == 'enforce' then soon = meter.start(m, 1, gate.shape.paused_until) end
  for _ = 1, groups.STALE do
    local pick
    pick, slot = groups:pick(soon, gate.now + gate.horizon)
    if not pick then break end
    if pick.from ~= 'group' or groups:take(pick) then
      gate.floor, gate.known, gate.group = pick.slot, pick.cost and pick or nil, pick.group
      if string.sub(pick.id, 1, 2) == '0:' or gate_admits(gate, pick.id) then return pick end
      if pick.from == 'group' then groups:put_back(pick) end
      gate.held = { group = pick.group, id = pick.id, tag = pick.tag, cost = gate.cost, costs = gate.costs }
      return gates.groups.pass(gate, pick.group, gate.now + gate.horizon)
    end
    -- The job was gone. After too many of these the caller asks again.
    slot = 0
  end
  if not slot or slot == math.huge then
    gate.idle = groups:may_wait()
  else
    gate.shut, gate.next, gate.next_cost, gate.passable = true, math.max(gate.now, slot), 1, true
    gate.holds = groups:cause()
  end
  return nil
end

function gates.groups.served(gate, pick)
  if string.sub(pick.id, 1, 2) == '0:' then
    gate.groups.plain_known = false
    return
  end
  gate.groups:served(pick, gate.slot, gate.cost, gate.runs)
  gate.floor = 0
end

-- Adds groups to the handlers of the gate: the choice is made at the first pop.
function gates.groups.handle(gate, handlers)
  local call = redis.call
  gate.groups:handle(handlers, redis)
  function handlers.RPOPLPUSH(command, source, target)
    gate.tried = true
    if gate.shut then
      gate.pick = false
      return false
    end
    local groups = gate.groups
    -- As below: reading an empty list would be a keyspace miss.
    if not groups.plain_known and not groups.ageing then
      groups.none_in_wait = not call(command, source, target)
      if not groups.none_in_wait then call('LMOVE', target, source, 'LEFT', 'RIGHT') end
    end
    gate.pick = gates.groups.pick(gate)
    groups.none_in_wait = false
    if not gate.pick or gate.pick.from ~= 'wait' then return false end
    local id = call(command, source, target)
    gates.groups.served(gate, gate.pick)
    return id
  end
  function handlers.ZPOPMIN(_, key)
    local pick = gate.pick
    if not pick or pick.from == 'wait' then return {} end
    if pick.from == 'prioritized' then
      pick.number = call('ZSCORE', key, pick.id)
      call('ZREM', key, pick.id)
    end
    gate.score = pick.number
    gates.groups.served(gate, pick)
    return { pick.id, gate.score }
  end
end

-- What is kept with a job that was just charged under limits (limits/charged); nil if there are none.
local function gate_charged(gate)
  local shape, pick = gate.shape, gate.pick
  local parts, own = gate.limits, pick and pick.parts
  if not (parts or own) or not gate.runs then return nil end
  local by, own_by
  if not gate.meter and gate.lock_ms and not (pick and pick.bucket) then
    by, own_by = charged.start_by(parts or {}, gate.slot, gate.lock_ms), charged.start_by(own or {}, gate.slot, gate.lock_ms)
  end
  local members = shape.pools and parts and queue_limits.members(parts)
  return charged.text(charged.rules(shape), by and own_by and math.min(by, own_by), gate.slot, members)
end

local function gate_handlers(gate)
  local base, call = gate.base, redis.call
  local delayed, marker = base .. 'delayed', base .. 'marker'
  local handlers = {}
  function handlers.RPOPLPUSH(command, source, target)
    gate.tried = true
    if gate.shut then return false end
    local sought, from
    if probes.seeks(gate) then sought, from = probes.in_list(gate, source) end
    gate.aged = gate.ageing and not sought and gate.ageing.first(gate.ageing.queue)
    if gate.aged and gate.aged.from == 'prioritized' then return false end
    local known = sought or (gate.aged and gate.aged.id)
    -- Reading an empty list would be a keyspace miss, and users have alarms for these. A pop is none.
    local popped = not known and call(command, source, target)
    local id = known or popped
    -- '0:...' are markers that queues of BullMQ 4 left in the list.
    if id and string.sub(id, 1, 2) ~= '0:' and not gate_admits(gate, id) then
      if popped then call('LMOVE', target, source, 'LEFT', 'RIGHT') end
      return false
    end
    if gate.ageing then gate.ageing.left(gate.ageing.queue, id) end
    if not known then return popped end
    if not sought then return call(command, source, target) end
    call('LREM', source, from, id)
    call('LPUSH', target, id)
    return id
  end
  function handlers.ZPOPMIN(command, key)
    gate.tried = true
    if gate.shut then return {} end
    local aged = gate.aged
    local sought = probes.seeks(gate) and probes.in_set(gate, key) or (aged and aged.id)
    local id = sought or call('ZRANGE', key, 0, 0)[1]
    if id and not gate_admits(gate, id) then return {} end
    local popped = not sought and call(command, key)
      or { id, aged and aged.id == id and aged.score or call('ZSCORE', key, id) }
    if sought then call('ZREM', key, id) end
    if gate.ageing then gate.ageing.left(gate.ageing.queue, id) end
    gate.score = popped[2]
    return popped
  end
  local function start()
    return as_text.us(math.ceil(gate.slot / 1000)), as_text.us(math.ceil(gate.slot)), gate_charged(gate)
  end
  grants.handle(handlers, base, start, function() return gate.shut or gate.idle end)
  -- BullMQ's script looks for due jobs and, if it found no job, for the next due time: an empty set is not read twice.
  function handlers.ZRANGE(command, key, ...)
    if key == delayed and delay_clock.is_empty(key) then return {} end
    return call(command, key, ...)
  end
  -- From the second job of a call on, other workers have been woken already.
  function handlers.ZADD(command, key, ...)
    if gate.again and key == marker then return 0 end
    return call(command, key, ...)
  end
  return handlers
end

-- shape may be nil; m, the meter, is nil without a rate. An open gate lets everything through: BullMQ's script then
-- works on the real `redis`, at no extra cost. once: handlers for a call with many ends (ends/batch-once), or nil
function gates.new(shape, m, base, now, horizon, once)
  local limited = shape and shape.limits and shape.mode ~= 'off'
  local grouped = shape and shape.groups and shape.mode ~= 'off'
  local ageing = ageing_open(base, shape, now)
  local held = m or limited or grouped or ageing
  if not shape or (not held and shape.paused_until <= now and not shape.probe) then return { open = true, redis = redis } end
  local gate = { shape = shape, meter = m, base = base, now = now, horizon = horizon, delayed_in_shadow = 0, floor = 0 }
  if grouped then
    gate.groups = queue_groups.open(base, shape, now)
    gate.groups.limits = group_limits_of(base, shape, now)
  elseif ageing then
    gate.ageing, ageing.keeps = ageing, true
  end
  local handlers = gate_handlers(gate)
  for command, handler in pairs(once or {}) do handlers[command] = handler end
  if grouped then gates.groups.handle(gate, handlers) end
  gate.redis = hooked_redis(redis, handlers)
  if ageing then
    gate.order = grouped and gate.groups.ageing or ageing
    gate.redis = queued_at_redis(gate.redis, base, now, gate.order.forget)
  end
  return gate
end

return gates
