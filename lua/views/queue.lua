local next_departure = use 'admission/next-departure'
local occupancy = use 'admission/occupancy'
local schedule = use 'admission/schedule'
local held = use 'gate/held'
local queue_groups = use 'groups/queue-groups'
local queue_limits = use 'limits/queue-limits'
local meter = use 'meter/meter'
local pace = use 'meter/pace'
local service = use 'meter/service'
local as_text = use 'redis/as-text'
local queue_head = use 'reports/queue-head'
local shapes = use 'shape/shapes'
local view_group = use 'views/group'

-- The view of a queue. Times are µs as text, or ms as numbers if their names say so.
local view_queue = {
  -- At most this many groups are counted to find the one with the most jobs, by jobs spaced over all waiting ones.
  SPACED = 20,
}

-- The beginning of all views of a queue.
--   q.fields   of the current shape, nil if there is none: with the stored revision, because ended entries are not
--              written
function view_queue.open(key, now)
  local base = string.sub(key, 1, -11)
  local revision = redis.call('HGET', key, 'rev')
  local q = { base = base, now = now, shape = shapes.load(key, base, now) }
  if q.shape then
    q.fields = view_queue.fields(key)
    q.fields.rev = revision
  end
  return q
end

function view_queue.fields(key)
  local flat, fields = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

-- How full it is, by a few cheap counts: delayed jobs beyond a horizon count too.
function view_queue.crowd(base)
  local waiting = redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized')
  local later = redis.call('ZCARD', base .. 'delayed') + redis.call('ZCARD', base .. 'waiting-children')
  local capacity = tonumber(redis.call('HGET', base .. 'meta:shape', 'capacity') or nil)
  return { waiting = waiting, depth = waiting + later, capacity = capacity }
end

function view_queue.of_shape(q)
  return { at = as_text.us(q.now), shape = q.fields }
end

-- Counts by workers, and the packed fields of the meter.
local function counters(base)
  local fields = view_queue.fields(base .. 'meta:meter')
  local m, p = meter.unpacked(fields.bucket), fields.pace and pace.of(fields.pace)
  fields.bucket, fields.pace = nil, nil
  if m then fields.meanCost, fields.seen = as_text.exact(m.mean_cost), as_text.us(m.seen) end
  if p then fields.leftAt = as_text.us(p.last) end
  return fields
end

-- When the rate, the limits and the pause let the job at the head depart, µs; nil if unknown. m: the meter, nil without
-- a rate
local function queue_slot(q, m)
  local shape = q.shape
  if shape.limits and shape.mode == 'enforce' then
    local p = schedule.open(q.base, shape, q.now)
    return p.left > 0 and (schedule.nth(p, 1)) or nil
  end
  if not m then return nil end
  if shape.mode ~= 'enforce' then return math.max(q.now, shape.paused_until) end
  return (meter.start(m, next_departure.head_cost(q.base, shape, q.now) or 1, shape.paused_until))
end

-- If all jobs belong to held groups, the first slot of one, µs, infinite if unknown; nil if one may be in line.
local function groups_slot(q, waiting)
  if waiting == 0 or q.shape.mode ~= 'enforce' then return nil end
  local base = q.base
  local plain = redis.call('LLEN', base .. 'wait')
    + redis.call('ZCOUNT', base .. 'prioritized', as_text.us(queue_groups.BAND), '+inf')
  if plain > 0 and not redis.call('ZSCORE', base .. 'meta:groups:limited', '') then return nil end
  local slots = queue_groups.open(base, q.shape, q.now):slots(1)
  return slots and (slots[1] or math.huge)
end

-- The level of the bucket, and when the job at the head may depart: by the queue itself, and with its groups.
local function note_slots(q, view)
  local shape, m = q.shape, next_departure.meter(q.base, q.shape, q.now)
  if m then view.level = as_text.exact(math.max(0, m.tat - m.now) / m.interval) end
  if shape.service then
    local speed, ends = service.speed(shape.service, q.now)
    view.speed, view.speedEnds = as_text.exact(speed), as_text.us(ends)
  end
  if shape.limits and (shape.pools or string.find(shape.limits, '"schedule":', 1, true)) then
    view.closedLimits = {}
    for _, part in ipairs(queue_limits.open(shape, q.base, q.now)) do
      view.closedLimits[part.l.name] = queue_limits.closed(part)
    end
  end
  local own = queue_slot(q, m)
  local group = shape.groups and groups_slot(q, view.waiting)
  view.queueSlot = own and as_text.us(own)
  view.slot = view.queueSlot
  if group and (own or not (shape.interval or shape.limits)) then
    view.slot = group < math.huge and as_text.us(math.max(q.now, own or 0, group)) or nil
  end
  if group then view.groupsSlot = group < math.huge and as_text.us(group) or '' end
end

-- The state of the meter, which programs read too.
function view_queue.of_meter(q)
  local base, shape, view = q.base, q.shape, view_queue.of_shape(q)
  view.waiting = redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized')
  view.delayed, view.waitingChildren = redis.call('ZCARD', base .. 'delayed'), redis.call('ZCARD', base .. 'waiting-children')
  view.active, view.depth = redis.call('LLEN', base .. 'active'), view.waiting
  local meta = redis.call('HMGET', base .. 'meta', 'paused', 'concurrency')
  view.paused, view.concurrency = meta[1] and true or false, tonumber(meta[2] or nil)
  view.meter = counters(base)
  if shape then
    view.depth = occupancy.taken(base, shape, q.now)
    note_slots(q, view)
    if shape.groups then view.groups = view_group.counts(base) end
  end
  local head = queue_head.fields(base, shape, q.now)
  view.headReadyMs = head and queue_head.ready_ms(head)
  return view
end

-- For how long each cause has held a head, up to now, µs: while one waits, or is due.
local function held_us(q, view)
  local h, causes = held.open(q.base .. 'meta:meter'), {}
  if view.waiting > 0 or (view.dueMs and view.dueMs * 1000 <= q.now) then held.account(h, q.now) end
  for _, cause in ipairs(held.CAUSES) do causes[cause] = as_text.us(h[cause]) end
  return causes
end

-- For a queue with groups that is nearly full: the group with the most waiting jobs. The work does not grow with the
-- queue.
local function largest_group(base)
  local jobs, spaced, key = redis.call('ZCARD', base .. 'prioritized'), {}, base .. 'prioritized'
  local count = math.min(jobs, view_queue.SPACED)
  for i = 1, count do
    local rank = math.floor((i - 0.5) * jobs / count)
    spaced[i] = redis.call('ZRANGE', key, rank, rank)[1]
  end
  local group = view_group.most_frequent(view_group.of_jobs(base, spaced), 1)[1]
  return group and { id = group, waiting = redis.call('ZCARD', base .. 'meta:group:jobs:' .. group) }
end

-- The limit that holds the lane or the group that goes first, if all groups are held.
local function note_holder(q, view)
  local open = view_group.open(q)
  local lane, group = view_group.first_lane_held(open), view_group.first_held(q.base)
  if lane then view.heldLane = { limit = lane.limit, keys = lane.keys, closed = lane.closed } end
  if group then view.holder = view_group.row(open, group) end
end

-- All of it. nearly_full: the part of its capacity from which on a queue is
function view_queue.of_queue(q, nearly_full)
  local base, shape, view = q.base, q.shape, view_queue.of_meter(q)
  view.prioritized = redis.call('ZCARD', base .. 'prioritized')
  view.completed, view.failed = redis.call('ZCARD', base .. 'completed'), redis.call('ZCARD', base .. 'failed')
  view.exists = view.waiting + view.delayed + view.waitingChildren + view.active + view.completed + view.failed > 0
    or redis.call('EXISTS', base .. 'meta', base .. 'meta:shape', base .. 'meta:meter') > 0
  view.starts, view.workers = view_queue.fields(base .. 'meta:starts'), view_queue.fields(base .. 'meta:workers')
  view.accepted = tonumber(redis.call('GET', base .. 'id') or nil)
  if view.waiting > 0 then
    view.oldestReadyMs = queue_head.oldest_ms(base, view.headReadyMs)
  else
    local first = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
    -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
    if first[1] then view.dueMs = math.floor(tonumber(first[2]) / 4096) end
  end
  view.heldUs = held_us(q, view)
  if shape and shape.groups then
    view.grouped = redis.call('ZCOUNT', base .. 'prioritized', '-inf', '(' .. as_text.us(queue_groups.BAND))
    if shape.capacity and view.waiting >= nearly_full * shape.capacity then view.largestGroup = largest_group(base) end
    if view.groupsSlot then note_holder(q, view) end
  end
  return view
end

return view_queue
