--- @include "text"
--- @include "bucket"
--- @include "meter"
--- @include "hooks"
--- @include "job"
--- @include "queue-limits"

-- The gate: what BullMQ's text sees as `redis` while it looks for the next job. It lets a pop through only when
-- the head of the queue may leave; everything else of the script (the promotion of delayed jobs above all)
-- happens as ever. Once shut it stays shut for the call: a cheap job must not overtake the head.
--   gate.slot, gate.cost   of the job that was just let through; slot in µs on Redis's clock
--   gate.next              the slot that the refused head would get (µs), with gate.next_cost; gate.holds is why (lib/held)
--   gate.runs              whether the job at the head will run: one with a deferred failure will not
--   gate.deadline          when that job must have started (µs), where it says so and its slot is certain
--   gate.tried             whether the text looked for a job at all (a paused or maxed queue does not)
local ESTIMATE_US = 5000000

-- Returns the slot in µs on Redis's clock and, where the bucket is enforced, not rounded on the bucket's own time; then,
-- with limits beside it, in µs from now.
local function gate_slot_of_limits(gate, cost, costs)
  local shape, m, now = gate.shape, gate.meter, gate.now
  gate.limits = gate.limits or queue_limits_open(shape, gate.base, now)
  local wait, estimated, name = queue_limits_wait(gate.limits, cost, costs)
  local enforced = shape.mode == 'enforce'
  local offset = math.max(0, shape.paused_until - now)
  local paced = m and meter_slot(m, cost, shape.paused_until) - m.now or 0
  if enforced then offset = math.max(offset, wait, paced) end
  gate.limit = wait > paced and name or nil
  -- Nothing is granted ahead on an estimate, and it is soon looked at again: a holder may die before its lease is over.
  if enforced and estimated then
    offset = math.max(math.min(offset, ESTIMATE_US), gate.horizon + 1)
    gate.deadline = nil
  end
  local slot = now + math.ceil(offset)
  if enforced then return slot, m and m.now + offset, offset end
  if slot <= now + gate.horizon then
    local waits = wait > 0 or (m and meter_slot(m, cost, 0) > m.now)
    if waits then gate.delayed_in_shadow = gate.delayed_in_shadow + 1 end
    if m then meter_charge_shadow(m, cost) end
  end
  return slot, nil, offset
end

local function gate_slot(gate, id)
  local cost, deferred, costs, deadline = job_cost(gate.base .. id)
  local shape, m = gate.shape, gate.meter
  gate.cost, gate.cost_us, gate.runs, gate.deadline = cost, 0, not deferred, not deferred and deadline
  if deferred or (deadline and deadline < gate.now) then return gate.now end
  if shape.limits and shape.mode ~= 'off' then return gate_slot_of_limits(gate, cost, costs) end
  -- A pause is somebody's word, not the meter's: it holds in every mode.
  local slot = math.max(gate.now, shape.paused_until)
  if not m then return slot end
  if shape.mode == 'shadow' then
    if slot <= gate.now + gate.horizon then
      if meter_slot(m, cost, 0) > m.now then gate.delayed_in_shadow = gate.delayed_in_shadow + 1 end
      meter_charge_shadow(m, cost)
    end
    return slot
  end
  -- A time since 1970 has no room for parts of a microsecond: the bucket is charged with the exact slot.
  local exact = meter_slot(m, cost, shape.paused_until)
  return m.origin + math.ceil(exact), exact
end

-- After a hard pause one job goes first. Its outcome opens the gate (lua/apply-feedback), or its time does: a worker that
-- died says nothing, and some failures do not either. One that goes back is followed by another (lib/put-back). Returns
-- the earliest slot of a job that would have `slot` without it.
local function gate_probe(gate, slot)
  local state, value = string.match(gate.shape.probe, '^(%a+) (%d+)')
  if state == 'armed' then return slot, tonumber(value) end
  if tonumber(value) > gate.now then return math.max(slot, tonumber(value)) end
  redis.call('HDEL', gate.base .. 'meta:shape', 'probe')
  gate.shape.probe = nil
  -- Workers tell of every call that went well while they know of a probe.
  gate.shape.rev = redis.call('HINCRBY', gate.base .. 'meta:shape', 'rev', 1)
  return slot
end

local function gate_send_probe(gate, slot, patience_ms, id)
  gate.shape.probe = 'out ' .. us_text(math.ceil(slot) + patience_ms * 1000) .. ' ' .. us_text(patience_ms) .. ' ' .. id
  redis.call('HSET', gate.base .. 'meta:shape', 'probe', gate.shape.probe)
end

-- What a head with that slot waits for.
local function gate_holds(gate, slot, probing)
  if probing or gate.shape.paused_until >= slot - 1 then return 'pause' end
  return gate.limit and 'limits:' .. gate.limit or 'rate'
end

-- Lets the job at the head through, with its slot, or shuts the gate.
local function gate_admits(gate, id)
  local slot, exact, offset = gate_slot(gate, id)
  if gate.deadline and slot > gate.deadline then
    job_expire(gate.base, id, gate.deadline)
    gate.slot, gate.runs = gate.now, false
    return true
  end
  local patience_ms, unprobed = nil, slot
  if gate.shape.probe and gate.runs then slot, patience_ms = gate_probe(gate, slot) end
  if slot > gate.now + gate.horizon then
    gate.shut, gate.next, gate.next_cost = true, slot, gate.cost
    gate.holds = gate_holds(gate, slot, slot > unprobed)
    return false
  end
  gate.slot = slot
  if patience_ms then gate_send_probe(gate, slot, patience_ms, id) end
  if offset then queue_limits_charge(gate.limits, offset, gate.base .. id) end
  if exact then
    local m = gate.meter
    meter_charge(m, gate.cost, exact)
    gate.cost_us = bucket_ceil(gate.cost * m.interval)
  end
  return true
end

local function gate_handlers(gate)
  local base, call = gate.base, redis.call
  local delayed, pc, marker = base .. 'delayed', base .. 'pc', base .. 'marker'
  local handlers = {}
  function handlers.RPOPLPUSH(command, source, target)
    gate.tried = true
    if gate.shut then return false end
    local id = call('LINDEX', source, -1)
    -- '0:...' are markers that queues of BullMQ 4 left in the list.
    if id and string.sub(id, 1, 2) ~= '0:' and not gate_admits(gate, id) then return false end
    return call(command, source, target)
  end
  function handlers.ZPOPMIN(command, key)
    gate.tried = true
    if gate.shut then return {} end
    local head = call('ZRANGE', key, 0, 0)[1]
    if head and not gate_admits(gate, head) then return {} end
    local popped = call(command, key)
    gate.score = popped[2]
    return popped
  end
  -- BullMQ resets the counter that keeps equal priorities in order when it finds no job: here there is one.
  function handlers.DEL(command, key, ...)
    if key == pc and gate.shut then return 0 end
    return call(command, key, ...)
  end
  function handlers.HMSET(command, key, field, value, ...)
    if field ~= 'processedOn' then return call(command, key, field, value, ...) end
    return call(command, key, field, us_text(math.ceil(gate.slot / 1000)), 'departure', us_text(math.ceil(gate.slot)), ...)
  end
  -- From the second job of a call on: delayed jobs were promoted and neighbours were woken already.
  function handlers.ZRANGEBYSCORE(command, key, ...)
    if gate.again and key == delayed then return {} end
    return call(command, key, ...)
  end
  function handlers.ZADD(command, key, ...)
    if gate.again and key == marker then return 0 end
    return call(command, key, ...)
  end
  return handlers
end

-- shape may be nil; meter is nil without a rate. An open gate lets everything through: then BullMQ's text works on the
-- real `redis`, and nothing of this costs anything.
local function gate_new(shape, meter, base, now, horizon)
  local limited = shape and shape.limits and shape.mode ~= 'off'
  local open = not shape or (not meter and not limited and shape.paused_until <= now and not shape.probe)
  if open then return { open = true, redis = redis } end
  local gate = { shape = shape, meter = meter, base = base, now = now, horizon = horizon, delayed_in_shadow = 0 }
  gate.redis = hooked_redis(redis, gate_handlers(gate))
  return gate
end
