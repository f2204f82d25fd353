local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local job_options = use 'shape/job-options'

-- The slots that the next jobs will get: the gate's own checks on copies of the meter and the limits, which are charged
-- with each job in order. Nothing is stored. Computed job by job, only as far as requested.
--   p.slots   µs on Redis's clock; the first is that of the head
--   p.floors  if all groups are held, the earliest slot of each, µs
--   p.limit   the name of the limit that the head waits for, nil if it waits for none
--   p.first   the job of the first slot: id, nil if none waits, cost, costs
--   p.ended   no more slots are known: a place has to be given back, a probe runs, or the slot is too far ahead
local plan = {}

-- At most this many slots are computed; the costs of this many jobs are read at once.
plan.MOST, plan.CHUNK = 128, 16

-- Charges on these copies of states (limits/state) are not stored.
function plan.copy_limits(parts)
  local copies = {}
  for i, part in ipairs(parts) do
    copies[i] = { l = part.l, blocked = part.blocked, offset = 0, s = queue_limits.planned(part.l, part.s) }
  end
  return copies
end

-- gate: as gate/gates has left it. head: the slot of a refused head, µs, or nil
function plan.new(gate, head)
  local shape, m = gate.shape, gate.meter
  local p = {
    base = gate.base, now = gate.now, pause = shape.paused_until, enforced = shape.mode == 'enforce', slots = {},
    head = head, offset = math.max(0, shape.paused_until - gate.now), probing = shape.probe, jobs = {}, at = 0, read = 0,
  }
  if m then
    p.meter = {
      tat = m.tat, last = m.last, interval = m.interval, burst = m.burst, now = m.now, origin = m.origin, service = m.service,
    }
  end
  if gate.ageing then p.order = gate.ageing.order(gate.ageing.queue) end
  if gate.groups and p.enforced then p.floors = gate.groups:slots(plan.MOST) end
  if gate.groups and not p.floors then
    -- The refused job or, if none was refused, the next one of the group whose turn it is.
    local group = not gate.shut and gate.groups:next_in_line()
    p.jobs[1] = gate.shut and gate.next_id or group and gate.groups:head(group) or nil
  end
  if shape.limits and shape.mode ~= 'off' then
    p.limits = plan.copy_limits(gate.limits or queue_limits.open(shape, gate.base, gate.now))
  end
  return p
end

-- The next ids in order of departure: in BullMQ's the wait list, then the prioritized jobs.
function plan.read_on(p)
  local from = p.read
  p.read = from + plan.CHUNK
  p.jobs, p.at = {}, 0
  if p.order then
    for i = 1, plan.CHUNK do p.jobs[i] = p.order(from + i) end
    return
  end
  local waiting = redis.call('LRANGE', p.base .. 'wait', -p.read, -from - 1)
  for i = #waiting, 1, -1 do p.jobs[#p.jobs + 1] = waiting[i] end
  if #waiting == plan.CHUNK then return end
  p.waiting = p.waiting or from + #waiting
  local first = from + #waiting - p.waiting
  for _, id in ipairs(redis.call('ZRANGE', p.base .. 'prioritized', first, p.read - p.waiting - 1)) do
    p.jobs[#p.jobs + 1] = id
  end
end

-- The cost of the next job; after the last one, its cost again: more such jobs may come.
function plan.next_cost(p)
  while true do
    if p.at >= #p.jobs and not p.last_read then plan.read_on(p) end
    p.at = p.at + 1
    local id = p.jobs[p.at]
    if not id then
      p.last_read, p.id = true, nil
      return p.cost or 1, p.costs
    end
    if string.sub(id, 1, 2) ~= '0:' then
      local cost, deferred, costs = job_options.cost_of_job(p.base .. id)
      -- A job with a deferred failure passes without a slot.
      if not deferred then
        p.id, p.cost, p.costs = id, cost, costs
        return cost, costs
      end
    end
  end
end

-- µs from now, or nil if it depends on the end of another job.
function plan.next_offset(p, cost, costs)
  if not p.enforced then return p.offset end
  local offset = p.offset
  if p.limits then
    local wait, estimated, name = queue_limits.wait(p.limits, cost, costs)
    if #p.slots == 0 then p.limit = name end
    if estimated then return nil end
    offset = math.max(offset, wait)
  end
  if p.meter then offset = math.max(offset, meter.offset(p.meter, meter.slot(p.meter, cost, p.pause))) end
  return queue_limits.open_from(p.limits or {}, p.meter, offset)
end

function plan.charge(p, cost, offset)
  p.offset = offset
  if not p.enforced then return end
  if p.meter then bucket.charge(p.meter, cost, meter.after(p.meter, offset)) end
  if p.limits then queue_limits.charge(p.limits, offset, '') end
end

-- The slot of the i-th job from now on, nil if unknown.
function plan.slot(p, i)
  while #p.slots < i and not p.ended do
    local known = #p.slots
    local cost, costs = plan.next_cost(p)
    local offset = plan.next_offset(p, cost, costs)
    local floor = p.floors and (p.floors[known + 1] or math.huge)
    if floor and offset then offset = floor < math.huge and math.max(offset, floor - p.now) or nil end
    -- The slot of a refused head takes precedence: it may wait for an estimate, or for a probe.
    if known == 0 and p.head then
      p.slots[1] = p.head
      p.ended = not offset or p.probing
      offset = offset and math.max(offset, p.head - p.now)
    elseif offset and known < plan.MOST then
      p.slots[known + 1] = p.now + math.ceil(offset)
    else
      p.ended = true
    end
    if known == 0 then p.first = { id = p.id, cost = cost, costs = costs } end
    if not p.ended then plan.charge(p, cost, offset) end
  end
  return p.slots[i]
end

return plan
