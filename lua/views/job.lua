local estimate = use 'admission/estimate'
local next_departure = use 'admission/next-departure'
local schedule = use 'admission/schedule'
local group_limits_of = use 'groups/limits-of'
local group_line = use 'groups/line'
local queue_groups = use 'groups/queue-groups'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'
local view_group = use 'views/group'
local holders = use 'views/holders'
local view_queue = use 'views/queue'

-- The view of a job: where it is, what is ahead of it, and when it may start. Times as in views/queue.
local view_job = {
  -- Entries of a list that are searched at each end, which takes Redis about 1 ms.
  SEARCHED = 10000,
}
local FIELDS = { 'name', 'timestamp', 'priority', 'ats', 'processedOn', 'opts', 'throttledFor', 'failedReason' }

local DETAIL_FIELDS = { 'atm', 'finishedOn', 'stacktrace', 'progress' }
local DATA_FIELDS = { 'data', 'returnvalue' }

local ROW_FIELDS = {
  'name', 'timestamp', 'priority', 'delay', 'ats', 'failedReason', 'processedOn', 'finishedOn', 'opts',
}

-- Fields of a job by their names; nil if it is none: an id may be the name of one of BullMQ's lists or sets.
local function stored(key, names)
  local values, fields = redis.pcall('HMGET', key, unpack(names)), {}
  if values.err then return nil end
  for i, name in ipairs(names) do fields[name] = values[i] or nil end
  return fields
end

-- Nil if it is in no list or set, as far as the lists are searched.
local function state_of(base, id)
  if estimate.listed(base .. 'active', id, view_job.SEARCHED) then return 'active' end
  if estimate.listed(base .. 'wait', id, view_job.SEARCHED) then return 'waiting' end
  for _, state in ipairs({ 'prioritized', 'delayed', 'waiting-children', 'completed', 'failed' }) do
    if redis.call('ZSCORE', base .. state, id) then return state end
  end
end

-- Its position, for callers that need no more; nil if there is no such job. searched: how many of the wait list are
-- searched
function view_job.place(q, id, searched)
  local base = q.base
  if redis.call('EXISTS', base .. id) == 0 then return nil end
  for _, state in ipairs({ 'completed', 'failed', 'delayed', 'waiting-children' }) do
    if redis.call('ZSCORE', base .. state, id) then return { state = state, position = '', start = '' } end
  end
  if redis.call('LPOS', base .. 'active', id) then return { state = 'active', position = '', start = '' } end
  local position, start = group_line.estimate(base, q.shape, q.now, id, nil, searched)
  local state = redis.call('ZSCORE', base .. 'prioritized', id) and 'prioritized' or 'waiting'
  return { state = state, position = position, start = start }
end

-- Jobs that depart before a delayed one if it is due: waiting ones that are as important, and jobs due sooner.
local function ahead_of_delayed(base, id, priority)
  local ahead = redis.call('LLEN', base .. 'wait') + redis.call('ZRANK', base .. 'delayed', id)
  if priority == 0 then return ahead end
  return ahead + redis.call('ZCOUNT', base .. 'prioritized', '-inf', '(' .. as_text.us((priority + 1) * queue_groups.BAND))
end

-- Its place in its lane, and the limit that holds the lane.
local function note_lane(q, view, g, place)
  local limits, hold = group_limits_of(q.base, q.shape, q.now), nil
  if limits then hold = limits.hold(g, place) end
  view.lane = { before = place.n, waits = place.waits and true or nil }
  if not hold then return end
  local function row(one)
    local ends = one.at > 0 and as_text.us(one.at) or nil
    return { limit = one.limit, keys = one.keys, ends = ends, places = one.places, closed = one.closed }
  end
  view.lane.hold = row(hold)
  for i, one in ipairs(hold.others or {}) do
    view.lane.hold.others = view.lane.hold.others or {}
    view.lane.hold.others[i] = row(one)
  end
end

-- Its place among the groups: `ahead` counts their turns.
local function note_groups(q, view, id)
  local g, group = queue_groups.open(q.base, q.shape, q.now), queue_groups.of_job(q.base, id)
  local before, place = group_line.before(g, group, id, view_job.SEARCHED)
  if not before then return end
  if place then note_lane(q, view, g, place) end
  local line = group_line.open(g, q.shape, { group or '', jobs = {} })
  local ahead, counted = group_line.ahead(line, group or '', before)
  local start, limit = group_line.own_start(line, group or '', before, view.cost, place)
  if place and place.waits then
    -- The number of departures from other lanes meanwhile depends on when its limit lets its lane go.
    view.ahead, view.isAheadAtLeast = place.n, true
  else
    view.isAheadAtLeast = view.isAheadAtLeast or line.seen == group_line.MOST
    view.ahead = math.min(ahead, counted)
  end
  view.group = {
    row = group and view_group.row(view_group.open(q), group) or nil, before = before, limit = limit,
    start = start < math.huge and as_text.us(start) or nil,
  }
  local served = group and g:last_slot(group)
  view.group.served = served and as_text.us(served)
end

-- When the rate alone lets it start, and when the limits do too.
local function note_starts(q, view)
  local base, shape, now, ahead = q.base, q.shape, q.now, view.ahead
  local m = next_departure.meter(base, shape, now)
  if m then
    local first = ahead == 0 and view.cost or next_departure.head_cost(base, shape, now) or 1
    view.rateStart = as_text.us(meter.nth_start(m, ahead + 1, first, shape.paused_until))
  end
  if not shape.limits then return end
  local p = schedule.open(base, shape, now)
  view.taken = p.taken
  if #p.parts == 0 then return end
  view.limitStart = as_text.us((schedule.nth(p, ahead + 1)))
  view.limit = p.limit or p.parts[1].l.name
end

-- The jobs that hold the places for which a job waits.
local function holders_for(q, view)
  local row, hold = view.group and view.group.row, view.lane and view.lane.hold
  if row and row.state == 'full' then return holders.of_group(q, row.id) end
  return hold and hold.places and holders.of_places(q, hold.places) or {}
end

-- Rows of jobs; missing ones are left out. with_data, with_worker: whether to read their data and their workers too
function view_job.rows(q, ids, with_data, with_worker)
  local view = { rows = {} }
  for _, id in ipairs(ids) do
    local key = q.base .. id
    local row = { id = id, fields = stored(key, ROW_FIELDS) }
    if row.fields and row.fields.timestamp then
      row.cost, row.group = job_options.cost(row.fields.opts), queue_groups.named(row.fields.opts)
      row.data = with_data and redis.call('HGET', key, 'data') or nil
      row.worker = with_worker and holders.worker_of(q.base, id) or nil
      view.rows[#view.rows + 1] = row
    end
  end
  return view
end

-- The stored data of a job, and its state; nil if there is no such job.
function view_job.found(q, id)
  local base, fields = q.base, stored(q.base .. id, FIELDS)
  if not fields or not fields.timestamp then return nil end
  local view = { fields = fields, state = state_of(base, id), isAheadAtLeast = false }
  view.cost, view.costs = job_options.cost(fields.opts)
  local due = redis.call('ZSCORE', base .. 'delayed', id)
  if due then view.dueMs = math.floor(tonumber(due) / 4096) end
  if not view.state then
    -- Only the ends of a long list are searched.
    if redis.call('LLEN', base .. 'wait') <= 2 * view_job.SEARCHED then return nil end
    view.state, view.ahead, view.isAheadAtLeast = 'waiting', view_job.SEARCHED, true
  end
  return view
end

-- One job in full. with_data: whether to read its data and result too; logs: how many lines of its log, the newest ones;
-- nil for all
function view_job.detail(q, id, with_data, logs)
  local key, view = q.base .. id, view_job.found(q, id)
  if not view then return nil end
  for name, value in pairs(stored(key, DETAIL_FIELDS)) do view.fields[name] = value end
  view.data = with_data and stored(key, DATA_FIELDS) or nil
  view.worker = holders.worker_of(q.base, id)
  view.logs = logs == 0 and {} or redis.call('LRANGE', key .. ':logs', logs and -logs or 0, -1)
  return view
end

-- All of it, with its queue.
function view_job.of_job(q, id, nearly_full)
  local base, view = q.base, view_job.found(q, id)
  if not view then return nil end
  if view.state == 'delayed' then view.ahead = ahead_of_delayed(base, id, tonumber(view.fields.priority) or 0) end
  if view.state == 'waiting' or view.state == 'prioritized' then
    if q.shape and q.shape.groups then
      if not view.isAheadAtLeast then note_groups(q, view, id) end
    else
      view.ahead = view.ahead or estimate.position(base, q.shape, q.now, id, view_job.SEARCHED)
    end
  end
  if view.ahead and q.shape and q.shape.mode == 'enforce' then note_starts(q, view) end
  view.queue = view_queue.of_queue(q, nearly_full)
  view.holders = holders_for(q, view)
  return view
end

return view_job
